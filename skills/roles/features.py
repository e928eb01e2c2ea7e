"""Features of passages for the classifier: indicators of form and place, and hashed words.

Every indicator exists twice, alone and combined with the kind of passage, so that a heading may
have different meanings for code and for text. Words are hashed (CRC-32), so the weights contain no
vocabulary.
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

from skills.filtered_pattern import FilteredPattern
from skills.record import PassageKind
from skills.roles import cues
from skills.roles.passage_context import PassageContext, find_lists
from skills.roles.rules import DATA_LANGUAGES, SHELL_LANGUAGES

INDICATOR_BUCKETS = 1 << 15
"""Hash buckets of indicators, before those of words; enough to make collisions rare."""

WORD_BUCKETS = 1 << 15
"""Hash buckets of words, after the indicators."""

FEATURE_COUNT = INDICATOR_BUCKETS + WORD_BUCKETS
"""Number of all buckets."""

_WORD = re.compile(r"[a-z]+|[\u4e00-\u9fff]")
_HEADING_WORDS, _LEAD_WORDS = 40, 30
_OPENING = 100
_CODE_LINES = 60
_CODE: cues.Cues = {
    "defines": FilteredPattern(
        r"^\s*(?:def|class|function|export|async|public|func|fn)\s", re.M
    ).search,
    "imports": FilteredPattern(r"^\s*(?:import|from|require|use|#include)\b", re.M).search,
    "prints": FilteredPattern(r"\bprint\(|console\.log").search,
    "comments": FilteredPattern(r"^\s*(?:#|//|--) ", re.M).search,
    "counts": FilteredPattern(r"^\s*(?:#|//|--) *\d+[.)]", re.M).search,
    "steps": FilteredPattern(r"^\s*(?:#|//|--) *step", re.M | re.I).search,
    "installs": FilteredPattern(
        r"\b(?:pip|npm|apt|brew|conda|yarn|uv|cargo)[a-z-]* (?:install|add)"
    ).search,
    "blanks": FilteredPattern(r"<[a-z_ -]{1,60}>|\{[a-z_]{1,60}\}|\[[A-Z_ a-z]{1,60}\]").search,
    "tries": FilteredPattern(r"\btry:|except|catch ?\(").search,
    "arrows": FilteredPattern(r"→|->|=>").search,
    "tree": FilteredPattern(r"[├└│]").search,
}
_TEXT: cues.Cues = {
    "link": FilteredPattern(r"https?://|\]\(").search,
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
    """Sparse rows of features: places[starts[i]:starts[i + 1]] and their values are passage i's."""

    places: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]


@lru_cache(maxsize=1 << 15)
def _word_place(group: str, word: str) -> int:
    """Return the bucket of a word in a group."""
    return INDICATOR_BUCKETS + _hash(f"{group}:{word}", WORD_BUCKETS)


def _hash(name: str, size: int) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % size


@lru_cache(maxsize=1 << 13)
def _places(kind: str, group: str, names: CueNames) -> tuple[int, ...]:
    """Return the buckets of indicators, each alone and combined with the kind."""
    signs = [f"{group} {name}" for name in sorted(names)]
    return tuple(
        _hash(form, INDICATOR_BUCKETS) for sign in signs for form in (sign, f"{kind}:{sign}")
    )


class _Row:
    """A row under construction: buckets, and run lengths of their values."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.counts: list[int] = []
        self.values: list[float] = []

    def add_indicators(self, kind: str, groups: Iterable[tuple[str, CueNames]]) -> None:
        """Add indicators, each with value 1."""
        before = len(self.places)
        for group, names in groups:
            if names:
                self.places += _places(kind, group, names)
        self.counts.append(len(self.places) - before)
        self.values.append(1.0)

    def add_words(self, groups: Iterable[Sequence[int]]) -> None:
        """Add words by their buckets; the words of a group have unit length together."""
        for places in groups:
            if places:
                self.places += places
                self.counts.append(len(places))
                self.values.append(len(places) ** -0.5)

    def add(self, other: _Row) -> None:
        """Add all features of another row."""
        self.places += other.places
        self.counts += other.counts
        self.values += other.values


@dataclass(frozen=True, slots=True)
class _Document:
    """Values of the whole document that the features of a passage use."""

    contexts: Sequence[PassageContext]
    shares: tuple[str, ...]
    kinds: dict[int, Counter[PassageKind]]
    opens_list: frozenset[int]


def extract_features(contexts: Sequence[PassageContext]) -> Features:
    """Return the features of a document's passages."""
    document = _document(contexts)
    above: dict[tuple[str, int], _Row] = {}
    all_rows = _Row()
    starts = [0]
    for index, context in enumerate(contexts):
        kind = _kind(context)
        place = (kind, context.passage.section)
        if place not in above:
            above[place] = _Row()
            above[place].add_indicators(kind, _heading_indicators(context))
            above[place].add_words(_heading_words(context.headings))
        all_rows.add(above[place])
        all_rows.add_indicators(kind, _find_indicators(document, index))
        all_rows.add_words(_words(context))
        starts.append(len(all_rows.places))
    return Features(
        np.array(all_rows.places, np.int32),
        np.repeat(np.array(all_rows.values, np.float32), all_rows.counts),
        np.array(starts, np.int64),
    )


def _kind(context: PassageContext) -> str:
    kind = context.passage.kind
    return kind.value if kind in (PassageKind.CODE, PassageKind.TABLE) else "text"


def _document(contexts: Sequence[PassageContext]) -> _Document:
    kinds: dict[int, Counter[PassageKind]] = {}
    lines = code = 0
    for context in contexts:
        kinds.setdefault(context.passage.section, Counter())[context.passage.kind] += 1
        lines += len(context.lines)
        code += len(context.lines) if context.passage.kind is PassageKind.CODE else 0
    sections = {context.passage.section: context for context in contexts}
    steps = sum(
        "step" in context.heading_cues[0] for context in sections.values() if context.heading_cues
    )
    return _Document(
        contexts,
        (
            f"code {_level(code / max(1, lines), (0.1, 0.3, 0.6, 0.8))}",
            f"step {_level(steps / max(1, len(sections)), (0.05, 0.2, 0.4))}",
        ),
        kinds,
        frozenset(start for start, _ in find_lists(contexts)),
    )


def _find_indicators(document: _Document, index: int) -> Iterator[tuple[str, CueNames]]:
    """Yield the indicators of a passage, by group."""
    context = document.contexts[index]
    yield "is", ("any", context.passage.kind.value)
    yield "says", context.line_cues
    if context.lead:
        yield "led", ("so",)
        yield "asked", context.lead_cues
    if context.passage.kind is PassageKind.CODE:
        yield from _code_indicators(context)
    else:
        yield from _text_indicators(document, index)
    yield from _place_indicators(document, index)


def _heading_indicators(context: PassageContext) -> Iterator[tuple[str, CueNames]]:
    yield "depth", (str(min(3, len(context.headings))),)
    yield "near", context.heading_cues[0] if context.heading_cues else ()
    yield "far", frozenset().union(*context.heading_cues[1:])
    yield "under", frozenset().union(*context.heading_cues)
    yield "heading", cues.find_cues(context.nearest_heading.lower(), _HEADING)
    if any(_STEP_NUMBER.match(heading) for heading in context.headings):
        yield "under", ("number",)


def _code_indicators(context: PassageContext) -> Iterator[tuple[str, CueNames]]:
    language = context.passage.language.lower()
    family = (
        "shell"
        if language in SHELL_LANGUAGES
        else "data"
        if language in DATA_LANGUAGES
        else "program"
    )
    yield "family", (family,)
    yield "language", (language,)
    yield "code", cues.find_cues("\n".join(context.lines[:_CODE_LINES]), _CODE)
    if context.is_marked_example:
        yield "marked", ("so",)


def _text_indicators(document: _Document, index: int) -> Iterator[tuple[str, CueNames]]:
    context = document.contexts[index]
    if context.introduces:
        yield "introduces", ("so",)
    yield "first", cues.find_cues(context.first_line, _FIRST)
    yield "text", cues.find_cues("\n".join(context.lines), _TEXT)
    if context.passage.kind is PassageKind.TABLE:
        yield "column", cues.find_cues(context.first_line.lower(), cues.COLUMNS)
    if context.passage.kind is PassageKind.LIST_ITEM:
        yield "list", ("opens" if index in document.opens_list else "goes on",)


def _place_indicators(document: _Document, index: int) -> Iterator[tuple[str, CueNames]]:
    contexts, context = document.contexts, document.contexts[index]
    section = context.passage.section
    yield "lines", (str(_level(len(context.lines), (1, 3, 6, 10, 20))),)
    length = sum(map(len, context.lines))
    yield "length", (str(_level(length, (60, 120, 250, 500, 1000))),)
    yield "place", (str(5 * index // len(contexts)),)
    yield "share", document.shares
    for side, other in (("before", index - 1), ("after", index + 1)):
        if 0 <= other < len(contexts) and contexts[other].passage.section == section:
            yield side, (contexts[other].passage.kind.value,)
            yield side, contexts[other].line_cues
        else:
            yield side, ("nothing",)
    if index and context.continues_code_of(contexts[index - 1]):
        yield "chunk", ("so",)
    kinds = document.kinds[section]
    yield "codes here", (str(min(3, kinds[PassageKind.CODE])),)
    if kinds[PassageKind.CODE] == kinds.total():
        yield "codes here", ("only",)


def _level(value: float, steps: Sequence[float]) -> int:
    """Return the number of the ascending steps that the value exceeds."""
    return bisect_left(steps, value)


@lru_cache(maxsize=1 << 6)  # used for each kind of passage below the headings
def _heading_words(headings: tuple[str, ...]) -> tuple[Sequence[int], ...]:
    """Return the buckets of words and bigrams of the nearest heading, and of the outer headings."""
    nearest = _WORD.findall("".join(headings[:1]).lower())[:_HEADING_WORDS]
    above = _WORD.findall(" ".join(headings[1:]).lower())[:_HEADING_WORDS]
    return _word_places("heading", nearest + _pairs(nearest)), _word_places("above", above)


def _words(context: PassageContext) -> Iterator[Sequence[int]]:
    """Yield the buckets of the first words of a passage, and of its lead-in."""
    first = _WORD.findall(context.first_line[:_OPENING].lower())[:2]
    yield _word_places("first", first[:1] + _pairs(first))
    if context.lead:
        yield _lead_places(context.lead)


@lru_cache(maxsize=1 << 6)  # the items of a list have the same lead-in
def _lead_places(lead: str) -> Sequence[int]:
    words = _WORD.findall(lead.lower())[:_LEAD_WORDS]
    return _word_places("lead", words + _pairs(words))


def _word_places(group: str, words: Sequence[str]) -> list[int]:
    return [_word_place(group, word) for word in words]


def _pairs(words: Sequence[str]) -> list[str]:
    return [f"{one} {two}" for one, two in pairwise(words)]
