"""Features of passages for the classifier: signs of form and place, and hashed words.

Every feature exists twice, alone and bound to the kind of block, so that one heading may mean one
thing for code and another for text. Words are hashed (CRC-32): the weights hold no vocabulary.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from skills.record import BlockKind
from skills.roles import cues
from skills.roles.blocks import Block, list_runs
from skills.roles.rules import DATA, SHELL

SIGNS = 1 << 14
"""Places of signs, in front; so many that hardly two of them meet."""

WORDS = 1 << 14
"""Places of words, behind the signs."""

WIDTH = SIGNS + WORDS
"""Number of places."""

_WORD = re.compile(r"[a-z]+|[\u4e00-\u9fff]")
_HEADING_WORDS, _LEAD_WORDS = 40, 30
_CODE_LINES = 60
_CODE = {
    "defines": re.compile(r"^\s*(?:def|class|function|export|async|public|func|fn)\s", re.M),
    "imports": re.compile(r"^\s*(?:import|from|require|use|#include)\b", re.M),
    "prints": re.compile(r"\bprint\(|console\.log"),
    "comments": re.compile(r"^\s*(?:#|//|--) ", re.M),
    "counts": re.compile(r"^\s*(?:#|//|--) *\d+[.)]", re.M),
    "steps": re.compile(r"^\s*(?:#|//|--) *step", re.M | re.I),
    "installs": re.compile(r"\b(?:pip|npm|apt|brew|conda|yarn|uv|cargo)[a-z-]* (?:install|add)"),
    "blanks": re.compile(r"<[a-z_ -]{1,60}>|\{[a-z_]{1,60}\}|\[[A-Z_ a-z]{1,60}\]"),
    "tries": re.compile(r"\btry:|except|catch ?\("),
    "arrows": re.compile(r"→|->|=>"),
    "tree": re.compile(r"[├└│]"),
}
_TEXT = {
    "link": re.compile(r"https?://|\]\("),
    "digit": re.compile(r"\d"),
    "arrow": re.compile(r"→|->"),
    "code inside": re.compile(r"```"),
}
_FIRST = {
    "bold lead": re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\*\*"),
    "bold line": re.compile(r"^\s*\*\*[^*]+\*\*:?\s*$"),
    "bold": re.compile(r"^\s*\*\*"),
    "tick": re.compile(r"`"),
    "ordered": re.compile(r"^\s*\d"),
    "box": re.compile(r"^\s*[-*+]\s+\["),
}
_HEADING = {
    "imperative": cues.IMPERATIVE,
    "digit": re.compile(r"\d"),
    "number": re.compile(r"^\W*\d+[.)]"),
    "gerund": re.compile(r"^\w+ing\b", re.I),
    "tick": re.compile(r"`"),
}
_STEP_NUMBER = re.compile(r"^\W*(?:\d+[.):]|step|phase)", re.I)


@dataclass(frozen=True, slots=True)
class Features:
    """Sparse rows: places[starts[i]:starts[i + 1]] with their values belong to block i."""

    places: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]


class _Places:
    """Where features of one kind of block lie; known names are remembered."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._signs: dict[str, tuple[int, int]] = {}

    def of_sign(self, name: str) -> tuple[int, int]:
        """The sign alone, and bound to the kind."""
        found = self._signs.get(name)
        if found is None:
            found = (_hash(name, SIGNS), _hash(f"{self._kind}:{name}", SIGNS))
            self._signs[name] = found
        return found


def _hash(name: str, size: int) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % size


@dataclass(frozen=True, slots=True)
class _Document:
    """What the features of a block take from the whole document."""

    blocks: Sequence[Block]
    code_share: float
    step_share: float
    kinds: dict[int, Counter[BlockKind]]
    chunk: Sequence[bool]
    opens_list: frozenset[int]
    heading_signs: dict[str, frozenset[str]]


def extract(blocks: Sequence[Block]) -> Features:
    """The features of a document's blocks."""
    document = _document(blocks)
    memories = {kind: _Places(kind) for kind in ("code", "table", "text")}
    places: list[int] = []
    values: list[float] = []
    starts = [0]
    for index, block in enumerate(blocks):
        memory = memories[_kind(block)]
        for name in _signs(document, index):
            places += memory.of_sign(name)
        values += [1.0] * (len(places) - len(values))
        for group, words in filter(itemgetter(1), _words(block)):
            places += [SIGNS + _hash(f"{group}:{word}", WORDS) for word in words]
            values += [len(words) ** -0.5] * len(words)
        starts.append(len(places))
    return Features(
        np.array(places, np.int32), np.array(values, np.float32), np.array(starts, np.int64)
    )


def _kind(block: Block) -> str:
    kind = block.passage.kind
    return kind.value if kind in (BlockKind.CODE, BlockKind.TABLE) else "text"


def _document(blocks: Sequence[Block]) -> _Document:
    kinds: dict[int, Counter[BlockKind]] = {}
    lines = code = 0
    for block in blocks:
        kinds.setdefault(block.passage.section, Counter())[block.passage.kind] += 1
        lines += len(block.lines)
        code += len(block.lines) if block.passage.kind is BlockKind.CODE else 0
    sections = {block.passage.section: block for block in blocks}
    steps = sum("step" in block.headed[0] for block in sections.values() if block.headed)
    return _Document(
        blocks,
        code / max(1, lines),
        steps / max(1, len(sections)),
        kinds,
        [i > 0 and block.continues(blocks[i - 1]) for i, block in enumerate(blocks)],
        frozenset(start for start, _ in list_runs(blocks)),
        {nearest: cues.given(nearest, _HEADING) for nearest in {block.nearest for block in blocks}},
    )


def _signs(document: _Document, index: int) -> Iterator[str]:
    """Names of the signs that a block gives."""
    block = document.blocks[index]
    yield "any"
    yield block.passage.kind.value
    yield from _heading_signs(document, block)
    yield from (f"says {name}" for name in block.said)
    if block.lead:
        yield "led"
        yield from (f"asked {name}" for name in block.asked)
    if block.passage.kind is BlockKind.CODE:
        yield from _code_signs(block)
    else:
        yield from _text_signs(document, index)
    yield from _place_signs(document, index)


def _heading_signs(document: _Document, block: Block) -> Iterator[str]:
    yield f"depth {min(3, len(block.headings))}"
    for distance, given in enumerate(block.headed):
        for name in given:
            yield f"near {name}" if distance == 0 else f"far {name}"
            yield f"under {name}"
    yield from (f"heading {name}" for name in document.heading_signs[block.nearest])
    if any(_STEP_NUMBER.match(heading) for heading in block.headings):
        yield "under number"


def _code_signs(block: Block) -> Iterator[str]:
    language = block.passage.language.lower()
    yield "shell" if language in SHELL else "data" if language in DATA else "program"
    yield f"language {language}"
    body = "\n".join(block.lines[:_CODE_LINES])
    yield from (f"code {name}" for name in cues.given(body, _CODE))
    if any(map(cues.MARKED_EXAMPLE.search, block.lines)):
        yield "marked"


def _text_signs(document: _Document, index: int) -> Iterator[str]:
    block = document.blocks[index]
    if block.introduces:
        yield "introduces"
    yield from (f"first {name}" for name in cues.given(block.first, _FIRST))
    yield from (f"text {name}" for name in cues.given("\n".join(block.lines), _TEXT))
    if block.passage.kind is BlockKind.TABLE:
        yield from (f"column {name}" for name in cues.given(block.first, cues.COLUMNS))
    if block.passage.kind is BlockKind.LIST_ITEM:
        yield "opens list" if index in document.opens_list else "goes on"


def _place_signs(document: _Document, index: int) -> Iterator[str]:
    blocks, block = document.blocks, document.blocks[index]
    section = block.passage.section
    yield f"lines {_level(len(block.lines), (1, 3, 6, 10, 20))}"
    yield f"length {_level(sum(map(len, block.lines)), (60, 120, 250, 500, 1000))}"
    yield f"place {5 * index // len(blocks)}"
    yield f"code share {_level(document.code_share, (0.1, 0.3, 0.6, 0.8))}"
    yield f"step share {_level(document.step_share, (0.05, 0.2, 0.4))}"
    for side, other in (("before", index - 1), ("after", index + 1)):
        if 0 <= other < len(blocks) and blocks[other].passage.section == section:
            yield f"{side} {blocks[other].passage.kind.value}"
            yield from (f"{side} {name}" for name in blocks[other].said)
        else:
            yield f"{side} nothing"
    if document.chunk[index]:
        yield "chunk"
    kinds = document.kinds[section]
    yield f"codes here {min(3, kinds[BlockKind.CODE])}"
    if kinds[BlockKind.CODE] == kinds.total():
        yield "only code here"


def _level(value: float, steps: Iterable[float]) -> int:
    """How many of the steps the value exceeds."""
    return sum(value > step for step in steps)


def _words(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Groups of words, each with pairs of neighbours; a group has unit length in the features."""
    nearest = _WORD.findall(block.nearest.lower())[:_HEADING_WORDS]
    yield "heading", nearest + _pairs(nearest)
    yield "above", _WORD.findall(" ".join(block.headings[1:]).lower())[:_HEADING_WORDS]
    first = _WORD.findall(block.first.lower())[:2]
    yield "first", first[:1] + _pairs(first)
    lead = _WORD.findall(block.lead.lower())[:_LEAD_WORDS]
    yield "lead", lead + _pairs(lead)


def _pairs(words: Sequence[str]) -> list[str]:
    return [f"{one} {two}" for one, two in pairwise(words)]
