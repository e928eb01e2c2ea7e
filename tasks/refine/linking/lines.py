"""Selection of the lines of two skills that show how they relate, for a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from search.text.tokens import tokenize
from skills.parsing.markdown import find_fenced_lines
from skills.record import ParsedSkill
from skills.token_count import count_tokens

_LINE_LIMIT = 1_000
_MAX_LINES = 2_000
_LEADING_LINES = 8
_MIN_SCORE = 0.25

_FILE = re.compile(
    # A name begins where no other can: otherwise each place in a long word would be tried.
    r"(?<![\w-])[\w-]+\."
    r"(?:jsonl?|csv|tsv|xlsx?|docx?|pptx?|pdf|parquet|ya?ml|toml|xml|html|md|txt|wav|mp3|mp4|"
    r"srt|vtt|stl|obj|glb|png|jpe?g|svg|np[yz]|pkl|h5|hdf5|nc|mat|geojson|shp|pcap(?:ng)?|db|"
    r"sqlite3?|ipynb|tex|bib|rules|sql|onnx|pt)\b",
    re.IGNORECASE,
)
_COMMON_STEMS = frozenset(
    re.findall(
        r"\S+",
        "package package-lock tsconfig requirements pyproject pom readme skill claude "
        "agents license changelog todo config settings index main app input output data "
        "file result results report audio video image photo document doc page text speech "
        "book paper notes table example sample test temp tmp",
    )
)
"""Names of files that say nothing about their content."""

_CUE = re.compile(
    r"\b(?:needs?|needed|requires?d?|prerequisites?|depend\w*|inputs?|outputs?|produc\w+|"
    r"generat\w+|sav(?:es?|ed|ing)|writes?|written|loads?|reads?|expects?|takes|returns?|results?|"
    r"before|after|first|next|then|pipeline|follow\w*|instead|alternative\w*|conflict\w*|"
    r"do(?:n't| not)|never|must|incompatible|together|combin\w+|integrat\w+|related|skills?|"
    r"see|hand-?off|pass(?:es|ed)?)\b"
    r"|需要|依赖|输入|输出|生成|前置|之前|之后|然后|配合|技能|替代|冲突|不要",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"^[\s#>|*_=:.\-{}\[\](),;\"']*$")
_FENCE = re.compile(r"^\s*(?:[-*+]\s+|\d+[.)]\s+)?(?:```|~~~)")


class TextLine(NamedTuple):
    """A line of a file. code: whether it is inside a fence."""

    number: int
    text: str
    code: bool


class Exchanged(NamedTuple):
    """What a skill takes and gives; fields as in `SkillText`."""

    files: frozenset[str]
    inputs: frozenset[str]
    outputs: frozenset[str]


@dataclass(frozen=True, slots=True)
class SkillText:
    """Data of a skill for the comparison with another skill.

    description_line: line of the file at which the description begins. terms: index terms of name,
    description, declared inputs and outputs, and of the names of files in its text. name_terms:
    index terms of the name. files: names of files in its text, in lower case. inputs, outputs: the
    index terms of each declared input or output, joined by spaces.
    """

    skill_id: str
    content_hash: str
    name: str
    lines: tuple[TextLine, ...]
    description: str
    description_line: int
    terms: frozenset[str]
    name_terms: frozenset[str]
    files: frozenset[str]
    inputs: frozenset[str]
    outputs: frozenset[str]

    @property
    def exchanged(self) -> Exchanged:
        """What the skill takes and gives."""
        return Exchanged(self.files, self.inputs, self.outputs)

    @classmethod
    def from_parsed(cls, skill_id: str, content_hash: str, parsed: ParsedSkill) -> SkillText:
        """Read the compared data from a parsed skill."""
        record = parsed.record
        body = tuple(_read_lines(parsed))
        files = frozenset(name for line in body for name in find_files(line.text))
        said = (record.name, record.description, *record.inputs, *record.outputs)
        return cls(
            skill_id=skill_id,
            content_hash=content_hash,
            name=record.name,
            lines=body,
            description=record.description,
            description_line=_find_description(parsed),
            terms=frozenset(term for text in (*said, *sorted(files)) for term in tokenize(text)),
            name_terms=frozenset(tokenize(record.name)),
            files=files,
            inputs=frozenset(map(_whole_term, record.inputs)) - {""},
            outputs=frozenset(map(_whole_term, record.outputs)) - {""},
        )


def _whole_term(text: str) -> str:
    return " ".join(tokenize(text))


def find_files(text: str) -> set[str]:
    """Return the names of data files in a text, in lower case, without names that any skill might
    have."""
    found = {name.lower() for name in _FILE.findall(text)}
    return {name for name in found if name.partition(".")[0] not in _COMMON_STEMS}


def select_lines(
    skill: SkillText, others: Sequence[SkillText], max_tokens: int, line_tokens: int
) -> dict[int, str]:
    """Return the lines that say most about how a skill relates to other skills: text by line
    number.

    The description is always among them. max_tokens: maximum of all lines except the description;
    line_tokens: maximum that counts of one line, because more is not shown.
    """
    chosen = {skill.description_line: skill.description}
    scored = [
        (_score(line, place, skill, others), -place, line)
        for place, line in enumerate(skill.lines)
        if line.number != skill.description_line
    ]
    left, texts = max_tokens, set()
    for score, _, line in sorted(scored, reverse=True):
        cost = min(count_tokens(line.text), line_tokens) + 3
        if score < _MIN_SCORE or left < cost:
            break
        if line.text.strip() not in texts:
            texts.add(line.text.strip())
            left -= cost
            chosen[line.number] = line.text
    return chosen


def _score(line: TextLine, place: int, skill: SkillText, others: Sequence[SkillText]) -> float:
    """Return how much a line may say about the relation to one of these skills."""
    terms = set(tokenize(line.text))
    files = find_files(line.text)
    best = 0.0
    for other in others:
        foreign = other.name_terms - skill.name_terms
        named = bool(foreign) and other.name_terms <= terms | skill.name_terms
        shared = len(terms & other.terms) / (4 + len(terms))
        best = max(best, 4.0 * named + 2.0 * bool(files & other.files) + 2.0 * shared)
    if line.text.lstrip().startswith("#") and not line.code:
        return best + 0.1
    cue = 0.0 if line.code or not _CUE.search(line.text) else 1.0
    return best + cue + (1.0 if place < _LEADING_LINES else 0.0)


def _read_lines(parsed: ParsedSkill) -> Iterator[TextLine]:
    """Yield the lines of the body that have words, without the fences of code."""
    fenced = find_fenced_lines(parsed.lines, parsed.body_line)
    for number in range(parsed.body_line, min(len(parsed.lines), _MAX_LINES) + 1):
        text, code = parsed.lines[number - 1], fenced[number - 1]
        if not (_EMPTY.match(text) or (code and _FENCE.match(text))):
            yield TextLine(number, text[:_LINE_LIMIT], code)


def _find_description(parsed: ParsedSkill) -> int:
    front = enumerate(parsed.lines[: max(parsed.body_line - 1, 0)], 1)
    return next((number for number, text in front if text.lstrip().startswith("description")), 1)
