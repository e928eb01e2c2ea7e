"""Training queries generated from a skill's own text, for libraries with little or no feedback.

The inverse cloze task (Lee, Chang and Toutanova, ACL 2019): a piece of a text is the query for the
text it was taken from. The piece is removed from the text, so that a model learns relatedness
rather than string matching.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from skills.passages.headings import heading_paths_below_title
from skills.record import ParsedSkill, Passage, PassageKind

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？])|\n+")
_WORDS = re.compile(r"\w+")
_MIN_WORDS, _MAX_CHARACTERS = 4, 400
_JOINED = 3
"""Number of pieces joined in every fourth query."""


@dataclass(frozen=True, slots=True)
class ClozeQuery:
    """A query and the pieces of the skill's text that it consists of."""

    text: str
    pieces: tuple[str, ...]


def make_cloze_queries(parsed: ParsedSkill, count: int, seed: str) -> list[ClozeQuery]:
    """Return at most `count` queries from a skill, the same for the same seed.

    Queries are example tasks, sentences of the description and of when to use the skill, and
    headings with their first sentence. Every fourth query joins three of them into a longer task.
    No query contains the skill's name.
    """
    generator = random.Random(f"{seed}:{parsed.record.name}")
    name = _words_of_name(parsed.record.name)
    pieces = [piece for piece in _pieces(parsed) if name not in _words_of_name(" ".join(piece))]
    generator.shuffle(pieces)
    queries: list[ClozeQuery] = []
    while pieces and len(queries) < count:
        several = len(queries) % 4 == _JOINED and len(pieces) >= _JOINED
        taken, pieces = (
            (pieces[:_JOINED], pieces[_JOINED:]) if several else (pieces[:1], pieces[1:])
        )
        text = " ".join(": ".join(piece) for piece in taken)
        queries.append(ClozeQuery(text, tuple(part for piece in taken for part in piece[-1:])))
    return queries


def _pieces(parsed: ParsedSkill) -> list[tuple[str, ...]]:
    """Return possible queries, each a tuple whose last part occurs in the skill's text."""
    record = parsed.record
    found: list[tuple[str, ...]] = [(task,) for task in record.example_tasks]
    for text in (record.description, record.when_to_use):
        found += [(sentence,) for sentence in _sentences(text)]
    paths = heading_paths_below_title(parsed.sections)
    firsts: dict[int, Passage] = {}
    for passage in parsed.passages:
        if passage.kind is PassageKind.PARAGRAPH:
            firsts.setdefault(passage.section, passage)
    for section, passage in firsts.items():
        sentences = _sentences(parsed.text(passage.first_line, passage.last_line))
        found += [(*paths[section][-1:], sentence) for sentence in sentences[:1]]
    return list(dict.fromkeys(found))


def _sentences(text: str) -> list[str]:
    parts = (part.strip()[:_MAX_CHARACTERS] for part in _SENTENCE.split(text))
    return [part for part in parts if len(_WORDS.findall(part)) >= _MIN_WORDS]


def _words_of_name(name: str) -> str:
    return " ".join(_WORDS.findall(name.lower().replace("_", " ")))
