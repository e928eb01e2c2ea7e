"""Features of passages for the classifier: indicators of form and place, and hashed words.

Every feature exists twice, alone and combined with the kind of passage, so that a heading may mean
one thing for code and another for text. Words are hashed (CRC-32): the weights hold no vocabulary.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from skills.record import PassageKind
from skills.roles import cues
from skills.roles.passage_context import PassageContext, find_lists
from skills.roles.rules import DATA_LANGUAGES, SHELL_LANGUAGES

SIGN_BUCKETS = 1 << 15
"""Hash buckets of indicators, at the front; enough to make collisions rare."""

WORD_BUCKETS = 1 << 15
"""Hash buckets of words, after the indicators."""

FEATURE_COUNT = SIGN_BUCKETS + WORD_BUCKETS
"""Number of buckets."""

_WORD = re.compile(r"[a-z]+|[\u4e00-\u9fff]")
_HEADING_WORDS, _LEAD_WORDS = 40, 30
_OPENING = 100
_CODE_LINES = 60
_CODE: cues.Cues = {
    "defines": re.compile(r"^\s*(?:def|class|function|export|async|public|func|fn)\s", re.M).search,
    "imports": re.compile(r"^\s*(?:import|from|require|use|#include)\b", re.M).search,
    "prints": re.compile(r"\bprint\(|console\.log").search,
    "comments": re.compile(r"^\s*(?:#|//|--) ", re.M).search,
    "counts": re.compile(r"^\s*(?:#|//|--) *\d+[.)]", re.M).search,
    "steps": re.compile(r"^\s*(?:#|//|--) *step", re.M | re.I).search,
    "installs": re.compile(
        r"\b(?:pip|npm|apt|brew|conda|yarn|uv|cargo)[a-z-]* (?:install|add)"
    ).search,
    "blanks": re.compile(r"<[a-z_ -]{1,60}>|\{[a-z_]{1,60}\}|\[[A-Z_ a-z]{1,60}\]").search,
    "tries": re.compile(r"\btry:|except|catch ?\(").search,
    "arrows": re.compile(r"→|->|=>").search,
    "tree": re.compile(r"[├└│]").search,
}
_TEXT: cues.Cues = {
    "link": re.compile(r"https?://|\]\(").search,
    "digit": re.compile(r"\d").search,
    "arrow": re.compile(r"→|->").search,
    "code inside": re.compile(r"```").search,
}
_FIRST: cues.Cues = {
    "bold lead": re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\*\*").match,
    "bold line": re.compile(r"^\s*\*\*[^*]+\*\*:?\s*$").match,
    "bold": re.compile(r"^\s*\*\*").match,
    "tick": re.compile(r"`").search,
    "ordered": re.compile(r"^\s*\d").match,
    "box": re.compile(r"^\s*[-*+]\s+\[").match,
}
_HEADING: cues.Cues = {
    "imperative": cues.IMPERATIVE.match,
    "digit": re.compile(r"\d").search,
    "number": re.compile(r"^\W*\d+[.)]").match,
    "gerund": re.compile(r"^\w+ing\b").match,
    "tick": re.compile(r"`").search,
}
_STEP_NUMBER = re.compile(r"^\W*(?:\d+[.):]|step|phase)", re.I)


CueNames = frozenset[str] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """Sparse rows: places[starts[i]:starts[i + 1]] and their values belong to passage i."""

    places: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]


def _hash(name: str, size: int) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % size


@lru_cache(maxsize=1 << 13)
def _places(kind: str, group: str, names: CueNames) -> tuple[int, ...]:
    """Buckets of indicators, each alone and combined with the kind."""
    signs = [f"{group} {name}" for name in sorted(names)]
    return tuple(_hash(form, SIGN_BUCKETS) for sign in signs for form in (sign, f"{kind}:{sign}"))


class _Row:
    """A row under construction: buckets, and run lengths of their values."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.counts: list[int] = []
        self.values: list[float] = []

    def add_signs(self, kind: str, groups: Iterable[tuple[str, CueNames]]) -> None:
        """Add indicators, each with value 1."""
        before = len(self.places)
        for group, names in groups:
            if names:
                self.places += _places(kind, group, names)
        self.counts.append(len(self.places) - before)
        self.values.append(1.0)

    def add_words(self, groups: Iterable[tuple[str, list[str]]]) -> None:
        """Add words; the words of a group have unit length together."""
        for group, words in groups:
            if words:
                self.places += [
                    SIGN_BUCKETS + _hash(f"{group}:{word}", WORD_BUCKETS) for word in words
                ]
                self.counts.append(len(words))
                self.values.append(len(words) ** -0.5)

    def add(self, other: _Row) -> None:
        """Add all features of another row."""
        self.places += other.places
        self.counts += other.counts
        self.values += other.values


@dataclass(frozen=True, slots=True)
class _Document:
    """Values of the whole document that the features of a passage use."""

    blocks: Sequence[PassageContext]
    shares: tuple[str, ...]
    kinds: dict[int, Counter[PassageKind]]
    opens_list: frozenset[int]


def extract_features(blocks: Sequence[PassageContext]) -> Features:
    """The features of a document's passages."""
    document = _document(blocks)
    above: dict[tuple[str, int], _Row] = {}
    all_rows = _Row()
    starts = [0]
    for index, block in enumerate(blocks):
        kind = _kind(block)
        place = (kind, block.passage.section)
        if place not in above:
            above[place] = _Row()
            above[place].add_signs(kind, _heading_signs(block))
            above[place].add_words(_heading_words(block))
        all_rows.add(above[place])
        all_rows.add_signs(kind, _signs(document, index))
        all_rows.add_words(_words(block))
        starts.append(len(all_rows.places))
    return Features(
        np.array(all_rows.places, np.int32),
        np.repeat(np.array(all_rows.values, np.float32), all_rows.counts),
        np.array(starts, np.int64),
    )


def _kind(block: PassageContext) -> str:
    kind = block.passage.kind
    return kind.value if kind in (PassageKind.CODE, PassageKind.TABLE) else "text"


def _document(blocks: Sequence[PassageContext]) -> _Document:
    kinds: dict[int, Counter[PassageKind]] = {}
    lines = code = 0
    for block in blocks:
        kinds.setdefault(block.passage.section, Counter())[block.passage.kind] += 1
        lines += len(block.lines)
        code += len(block.lines) if block.passage.kind is PassageKind.CODE else 0
    sections = {block.passage.section: block for block in blocks}
    steps = sum(
        "step" in block.heading_cues[0] for block in sections.values() if block.heading_cues
    )
    return _Document(
        blocks,
        (
            f"code {_level(code / max(1, lines), (0.1, 0.3, 0.6, 0.8))}",
            f"step {_level(steps / max(1, len(sections)), (0.05, 0.2, 0.4))}",
        ),
        kinds,
        frozenset(start for start, _ in find_lists(blocks)),
    )


def _signs(document: _Document, index: int) -> Iterator[tuple[str, CueNames]]:
    """Groups of indicators of a passage."""
    block = document.blocks[index]
    yield "is", ("any", block.passage.kind.value)
    yield "says", block.line_cues
    if block.lead:
        yield "led", ("so",)
        yield "asked", block.lead_cues
    if block.passage.kind is PassageKind.CODE:
        yield from _code_signs(block)
    else:
        yield from _text_signs(document, index)
    yield from _place_signs(document, index)


def _heading_signs(block: PassageContext) -> Iterator[tuple[str, CueNames]]:
    yield "depth", (str(min(3, len(block.headings))),)
    yield "near", block.heading_cues[0] if block.heading_cues else ()
    yield "far", frozenset().union(*block.heading_cues[1:])
    yield "under", frozenset().union(*block.heading_cues)
    yield "heading", cues.find_cues(block.nearest_heading.lower(), _HEADING)
    if any(_STEP_NUMBER.match(heading) for heading in block.headings):
        yield "under", ("number",)


def _code_signs(block: PassageContext) -> Iterator[tuple[str, CueNames]]:
    language = block.passage.language.lower()
    family = (
        "shell"
        if language in SHELL_LANGUAGES
        else "data"
        if language in DATA_LANGUAGES
        else "program"
    )
    yield "family", (family,)
    yield "language", (language,)
    yield "code", cues.find_cues("\n".join(block.lines[:_CODE_LINES]), _CODE)
    if block.is_marked_example:
        yield "marked", ("so",)


def _text_signs(document: _Document, index: int) -> Iterator[tuple[str, CueNames]]:
    block = document.blocks[index]
    if block.introduces:
        yield "introduces", ("so",)
    yield "first", cues.find_cues(block.first_line, _FIRST)
    yield "text", cues.find_cues("\n".join(block.lines), _TEXT)
    if block.passage.kind is PassageKind.TABLE:
        yield "column", cues.find_cues(block.first_line.lower(), cues.COLUMNS)
    if block.passage.kind is PassageKind.LIST_ITEM:
        yield "list", ("opens" if index in document.opens_list else "goes on",)


def _place_signs(document: _Document, index: int) -> Iterator[tuple[str, CueNames]]:
    blocks, block = document.blocks, document.blocks[index]
    section = block.passage.section
    yield "lines", (str(_level(len(block.lines), (1, 3, 6, 10, 20))),)
    length = sum(map(len, block.lines))
    yield "length", (str(_level(length, (60, 120, 250, 500, 1000))),)
    yield "place", (str(5 * index // len(blocks)),)
    yield "share", document.shares
    for side, other in (("before", index - 1), ("after", index + 1)):
        if 0 <= other < len(blocks) and blocks[other].passage.section == section:
            yield side, (blocks[other].passage.kind.value,)
            yield side, blocks[other].line_cues
        else:
            yield side, ("nothing",)
    if index and block.continues_code_of(blocks[index - 1]):
        yield "chunk", ("so",)
    kinds = document.kinds[section]
    yield "codes here", (str(min(3, kinds[PassageKind.CODE])),)
    if kinds[PassageKind.CODE] == kinds.total():
        yield "codes here", ("only",)


def _level(value: float, steps: Sequence[float]) -> int:
    """Number of the ascending steps that the value exceeds."""
    return bisect_left(steps, value)


def _heading_words(block: PassageContext) -> Iterator[tuple[str, list[str]]]:
    """Groups of words and bigrams of the nearest heading and of the others."""
    nearest = _WORD.findall(block.nearest_heading.lower())[:_HEADING_WORDS]
    yield "heading", nearest + _pairs(nearest)
    yield "above", _WORD.findall(" ".join(block.headings[1:]).lower())[:_HEADING_WORDS]


def _words(block: PassageContext) -> Iterator[tuple[str, list[str]]]:
    """Groups of words and bigrams of the opening and of the lead-in."""
    first = _WORD.findall(block.first_line[:_OPENING].lower())[:2]
    yield "first", first[:1] + _pairs(first)
    if block.lead:
        lead = _WORD.findall(block.lead.lower())[:_LEAD_WORDS]
        yield "lead", lead + _pairs(lead)


def _pairs(words: Sequence[str]) -> list[str]:
    return [f"{one} {two}" for one, two in pairwise(words)]
