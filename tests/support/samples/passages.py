"""Skills and queries for passage selection: words hashed to terms and to small unit vectors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from skills.passages import PassageInput, PassageQuery, passage_texts, section_texts
from skills.record import ParsedSkill, SkillRecord
from tests.support.samples.fragments import split_lines

DIMENSION = 8

LINES = st.lists(
    st.sampled_from(
        [
            "",
            "# A",
            "## Step 1: heat",
            "### C",
            "plain oven words",
            "- an item",
            "  - nested",
            "1. bake, then see Step 1",
            "```",
            "Lead in:",
            "| a | b |",
            "|---|---|",
            "x = 1",
            "用水清洗",
            "if cold, heat",
        ]
    ),
    max_size=40,
)
"""Lines of a skill, of all kinds."""


def term(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def vector(text: str) -> np.ndarray:
    """A bag of hashed words, as a unit vector."""
    out = np.full(DIMENSION, 1e-3, np.float32)
    for word in words(text):
        out[term(word) % DIMENSION] += 1
    return out / np.linalg.norm(out)


def vectors(texts: Sequence[str]) -> np.ndarray:
    return np.array([vector(text) for text in texts], np.float32).reshape(len(texts), DIMENSION)


def parse(lines: Sequence[str]) -> ParsedSkill:
    return ParsedSkill(SkillRecord("x", "y", "z"), tuple(lines), 1, *split_lines(lines, 1))


def passage_input_of(
    parsed: ParsedSkill, *, dense: bool = True, passages: bool = False
) -> PassageInput:
    """The skill with its term counts, and with vectors of its sections and passages."""
    rows, terms, counts = [0], [], []
    for passage in parsed.passages:
        found = [term(word) for word in words(parsed.text(passage.first_line, passage.last_line))]
        ids, times = np.unique(np.array(found, np.uint64), return_counts=True)
        terms.append(ids)
        counts.append(times)
        rows.append(rows[-1] + len(ids))
    return PassageInput(
        parsed,
        np.array(rows, np.int32),
        np.concatenate([np.empty(0, np.uint64), *terms]),
        np.concatenate([np.empty(0, np.uint16), *counts]).astype(np.uint16),
        vectors(section_texts(parsed)) if dense else None,
        vectors(passage_texts(parsed)) if passages else None,
    )


def query_of(text: str, *, dense: bool = True) -> PassageQuery:
    ids = np.unique(np.array([term(word) for word in words(text)], np.uint64))
    return PassageQuery(vector(text) if dense else None, ids, np.ones(len(ids), np.float32))
