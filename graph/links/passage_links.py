"""Typed links between the passages of one skill (SkillPager §3.1).

The types are sequence, semantic, reference and condition. Links are stored with the revision, by
passage index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, product
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from config.errors import UsageError
from skills.record import ParsedSkill, Passage, PassageKind, Role

Vectors = npt.NDArray[np.float32]
Key = TypeVar("Key")


class PassageLinkType(StrEnum):
    """Types of links between passages."""

    SEQUENCE = "sequence"
    SEMANTIC = "semantic"
    REFERENCE = "reference"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True)
class PassageLink:
    """A directed link from passage `source` to passage `target`, both indices into `passages`."""

    source: int
    target: int
    type: PassageLinkType
    weight: float
    evidence: str


_MIN_SEMANTIC_COSINE = 0.85
"""Exclusive minimum (SkillPager's tau)."""

_MAX_LINKS_PER_PASSAGE = 5
"""Maximum links of a type that start at one passage."""

_CONDITION_REACH = 20
"""Number of passages after a precondition that are searched for its step."""

_MIN_TITLE_LENGTH = 4
"""Minimum characters of a heading that references can name."""

_BLOCK = 512
_TEXT_LIMIT = 4000
_MAX_TITLE_WORDS = 20
_WORDS = re.compile(r"[\u3400-\u9fff]|(?:(?![\u3400-\u9fff])[^\W_])+")
_NUMBERING = re.compile(r"^\W*(?:(?:step|phase|part)\s+)?\d*[.):\s]*", re.IGNORECASE)
_KEY_TERM = re.compile(r"`([^`\n]{3,60})`|\*\*([^*\n]{3,60})\*\*")
_MARKER = re.compile(r"^\s*(?:(?:[-*+•]|\d{1,3}[.)])\s+)?")
_STEP_NUMBER = re.compile(
    r"\b(?:step|phase)\s+(\d{1,2})\b|第\s*(\d{1,2})\s*[步阶]|步骤\s*(\d{1,2})", re.I
)
_CUE = re.compile(
    r"\b(?:before|prior to|until|unless|requires?|required|must|only (?:if|when)|make sure|ensure|"
    r"needed|prerequisites?)\b|之前|前置|必须|需要|确保|先",
    re.IGNORECASE,
)
_COMMON_TITLES = frozenset(
    {
        "overview", "introduction", "summary", "notes", "note", "example", "examples", "usage",
        "steps", "output", "input", "inputs", "outputs", "references", "resources", "tips",
        "important", "warning", "description", "purpose", "details", "workflow", "process",
        "概述", "简介", "示例", "说明", "用法", "注意", "步骤", "输出", "输入",
    }
)  # fmt: skip


def link_passages(parsed: ParsedSkill, vectors: Vectors | None = None) -> tuple[PassageLink, ...]:
    """Return all links between the passages of a skill, sorted by source, target and type.

    vectors: unit vectors of the passages, (passages, d), or of the sections, (sections, d). With
    vectors of sections, similar sections are linked at their first passages. Without vectors there
    are no semantic links. Raises UsageError for any other number of vectors.
    """
    found = [
        *_sequence(parsed.passages),
        *_semantic(parsed, vectors),
        *_references(parsed),
        *_conditions(parsed),
    ]
    kept: dict[tuple[int, int, str], PassageLink] = {}
    for link in found:
        if link.source != link.target:
            kept.setdefault((link.source, link.target, link.type), link)
    return tuple(kept[place] for place in sorted(kept))


def _sequence(passages: Sequence[Passage]) -> list[PassageLink]:
    """Return links between neighbours in document order."""
    return [
        PassageLink(one.index, two.index, PassageLinkType.SEQUENCE, 1.0, "next in the document")
        for one, two in pairwise(passages)
    ]


def _semantic(parsed: ParsedSkill, vectors: Vectors | None) -> list[PassageLink]:
    """Return links to the most similar passages above the threshold; computed in blocks of rows."""
    if vectors is None or not len(vectors):
        return []
    if len(vectors) == len(parsed.passages):
        places = list(range(len(vectors)))
        rows = np.asarray(vectors)
    elif len(vectors) == len(parsed.sections):
        first: dict[int, int] = {}
        for passage in parsed.passages:
            first.setdefault(passage.section, passage.index)
        sections = sorted(first)
        places = [first[section] for section in sections]
        rows = np.asarray(vectors)[sections]
    else:
        raise UsageError(
            f"{len(vectors)} vectors fit neither {len(parsed.passages)} passages "
            f"nor {len(parsed.sections)} sections"
        )
    links = []
    for start in range(0, len(rows), _BLOCK):
        cosines = rows[start : start + _BLOCK] @ rows.T
        for offset, scores in enumerate(cosines):
            scores[start + offset] = -1.0
            near = np.flatnonzero(scores > _MIN_SEMANTIC_COSINE)
            best = near[np.lexsort((near, -scores[near]))][:_MAX_LINKS_PER_PASSAGE]
            for other in best.tolist():
                weight = min(1.0, float(scores[other]))
                pair = (places[start + offset], places[other])
                evidence = f"cosine {weight:.2f}"
                links.append(PassageLink(*pair, PassageLinkType.SEMANTIC, weight, evidence))
    return links


def _references(parsed: ParsedSkill) -> list[PassageLink]:
    """Return links to sections whose heading, step number or introduced term a passage mentions."""
    first: dict[int, Passage] = {}
    for passage in parsed.passages:
        first.setdefault(passage.section, passage)
    titles = _titles(parsed, first)
    lengths = sorted(set(map(len, titles)))
    numbers = _step_numbers(parsed, first)
    terms = _introduced(parsed)
    links = []
    for passage in parsed.passages:
        text = _text(parsed, passage)
        words = _words(text)
        found: dict[int, str] = {}
        for start, length in product(range(len(words)), lengths):
            title = tuple(words[start : start + length])
            target = titles.get(title)
            if target is not None and target.section != passage.section:
                found.setdefault(target.index, f"names the heading {' '.join(title)!r}")
        for match in _STEP_NUMBER.finditer(text):
            named = numbers.get(int(match[match.lastindex or 0]))
            if named is not None and named.section != passage.section:
                found.setdefault(named.index, f"refers to {match.group()!r}")
        for term in map(_get_term, _KEY_TERM.finditer(text)):
            introduced = terms.get(term)
            if introduced is not None and introduced.section != passage.section:
                found.setdefault(introduced.index, f"uses the term {term!r}")
        for target_index, evidence in list(found.items())[:_MAX_LINKS_PER_PASSAGE]:
            pair = (passage.index, target_index)
            links.append(PassageLink(*pair, PassageLinkType.REFERENCE, 1.0, evidence))
    return links


def _titles(parsed: ParsedSkill, first: dict[int, Passage]) -> dict[tuple[str, ...], Passage]:
    """Return words of a distinctive heading -> first passage below it; headings of several sections
    are left out."""
    named: list[tuple[tuple[str, ...], Passage]] = []
    for section in parsed.sections:
        if section.level > 1 and section.index in first and section.heading_path:
            title = tuple(_words(_NUMBERING.sub("", section.heading_path[-1])))
            joined = " ".join(title)
            common = joined in _COMMON_TITLES or "".join(title) in _COMMON_TITLES
            is_long = len(joined) >= _MIN_TITLE_LENGTH
            if 1 < len(title) <= _MAX_TITLE_WORDS and is_long and not common:
                named.append((title, first[section.index]))
    return _drop_ambiguous(named)


def _step_numbers(parsed: ParsedSkill, first: dict[int, Passage]) -> dict[int, Passage]:
    """Return first passages of numbered steps, by number; ambiguous numbers are left out."""
    found = []
    for section in parsed.sections:
        match = _STEP_NUMBER.search(section.heading_path[-1]) if section.heading_path else None
        if match is not None and section.index in first:
            found.append((int(match[match.lastindex or 0]), first[section.index]))
    return _drop_ambiguous(found)


def _introduced(parsed: ParsedSkill) -> dict[str, Passage]:
    """Return key term -> passage that begins with it; terms of several passages are left out."""
    found = []
    for passage in parsed.passages:
        if passage.kind is not PassageKind.CODE:
            match = _KEY_TERM.match(_MARKER.sub("", _text(parsed, passage), count=1))
            if match is not None:
                found.append((_get_term(match), passage))
    return _drop_ambiguous(found)


def _drop_ambiguous(named: Sequence[tuple[Key, Passage]]) -> dict[Key, Passage]:
    """Return the passage of each key that only one pair has."""
    times = Counter(key for key, _ in named)
    return {key: passage for key, passage in named if times[key] == 1}


def _get_term(match: re.Match[str]) -> str:
    """Return the key term of a match of `_KEY_TERM`."""
    return match[match.lastindex or 0].strip(" :：").casefold()


def _conditions(parsed: ParsedSkill) -> list[PassageLink]:
    """Return a link from each precondition to the step that it constrains.

    This is the next step in its section or a subsection, otherwise the next step at all.
    """
    links = []
    for passage in parsed.passages:
        if passage.role is not Role.PRECONDITION:
            continue
        following = parsed.passages[passage.index + 1 : passage.index + 1 + _CONDITION_REACH]
        steps = [other for other in following if other.role is Role.STEP]
        if not steps:
            continue
        home = parsed.sections[passage.section].heading_path
        inside = [s for s in steps if parsed.sections[s.section].heading_path[: len(home)] == home]
        target = (inside or steps)[0]
        cue = _CUE.search(_text(parsed, passage))
        weight = 1.0 if inside or cue else 0.5
        evidence = f"says {cue.group()!r}" if cue else "precedes the step"
        pair = (passage.index, target.index)
        links.append(PassageLink(*pair, PassageLinkType.CONDITION, weight, evidence))
    return links


def _text(parsed: ParsedSkill, passage: Passage) -> str:
    return parsed.text(passage.first_line, passage.last_line)[:_TEXT_LIMIT]


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORDS.findall(text)]
