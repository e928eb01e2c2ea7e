"""Labelled queries as cases of the model of which passages a query needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search.models.batch_encoder import BatchEncoder
from search.skill_analysis import analyse_skill
from search.text.query_understanding import understand
from skills.parsing.parse_skill import parse_skill
from skills.passages import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    compute_margins,
    get_line_ranges,
    score_passages,
    section_texts,
)
from skills.passages.features import compute_features
from skills.record import ParsedSkill
from skills.token_count import count_tokens
from workers.evaluation.predictions import read_jsonl

Floats = npt.NDArray[np.float64]


@dataclass
class Case:
    """A query of a skill. features: (P, F); needed: (P,); shown: lines that a passage brings."""

    query_id: str
    parsed: ParsedSkill
    skill: str
    collection: str
    features: Floats
    tokens: Floats
    needed: npt.NDArray[np.bool_]
    shown: npt.NDArray[np.bool_]
    line_tokens: Floats
    required: list[int]


class Vectors:
    """An encoder that keeps what it encoded in a file."""

    def __init__(self, encoder: BatchEncoder, cache: Path | None) -> None:
        self.encoder, self.cache = encoder, cache
        self.known: dict[str, Any] = {}
        if cache is not None and cache.exists():
            with np.load(cache) as kept:
                self.known = dict(kept)

    def encode(self, texts: Sequence[str], kind: str) -> Any:
        """Vectors of texts (n, d)."""
        keys = [
            blake2b(f"{self.encoder.model}\0{kind}\0{text}".encode(), digest_size=12).hexdigest()
            for text in texts
        ]
        missing = {
            key: text for key, text in zip(keys, texts, strict=True) if key not in self.known
        }
        if missing:
            ordered = list(missing.values())
            encode = self.encoder.encode_queries if kind == "query" else self.encoder.encode_texts
            fresh = encode(ordered)
            self.known |= dict(zip(missing, fresh, strict=True))
        return np.stack([self.known[key] for key in keys])

    def save(self) -> None:
        """Write the file."""
        if self.cache is not None:
            np.savez(self.cache, **self.known)


def load(parts: list[tuple[str, Path, Path]], vectors: Vectors) -> dict[str, list[Case]]:
    """The cases with section vectors where the encoder knows the language, and without any."""
    cases: dict[str, list[Case]] = {"vectors": [], "words": []}
    pages: dict[Path, PassageInput] = {}
    for name, gold, folder in parts:
        for row in read_jsonl(gold, ("query_id", "query", "skill_id")):
            place = folder / row["skill_id"].partition(":")[2]
            if place not in pages:
                pages[place] = read_page(place, vectors)
            page = pages[place]
            understanding = understand(row["query"])
            order = np.argsort(understanding.ids)
            terms = understanding.ids[order], understanding.weights[order]
            if (
                understanding.language in vectors.encoder.languages
                and page.section_vectors is not None
            ):
                vector = vectors.encode([understanding.text], "query")[0]
                cases["vectors"].append(make_case(name, row, PassageQuery(vector, *terms), page))
            cases["words"].append(make_case(name, row, PassageQuery(None, *terms), page))
    return cases


def read_page(folder: Path, vectors: Vectors) -> PassageInput:
    """A skill with its section vectors."""
    parsed = parse_skill(folder.name, (folder / "SKILL.md").read_bytes())
    terms = analyse_skill(parsed).passage_terms
    known = parsed.record.language in vectors.encoder.languages and parsed.sections
    sections = vectors.encode(section_texts(parsed), "section") if known else None
    return PassageInput(parsed, terms.offsets, terms.terms, terms.counts, sections)


def make_case(name: str, row: dict[str, Any], query: PassageQuery, page: PassageInput) -> Case:
    """Features and labels of a query."""
    parsed = page.parsed
    scores = score_passages(query, page, DEFAULT_WEIGHTS)
    margins = compute_margins(scores, page, DEFAULT_WEIGHTS)
    required = {
        number - 1
        for first, last in row["required"]
        for number in range(first, last + 1)
        if parsed.lines[number - 1].strip()
    }
    shown = np.zeros((len(parsed.passages), len(parsed.lines)), bool)
    for passage in parsed.passages:
        for first, last in get_line_ranges(parsed, [passage.index]):
            shown[passage.index, first - 1 : last] = True
    tokens = np.array([float(count_tokens(line)) for line in parsed.lines])
    tokens[: parsed.body_line - 1] = 0
    needed = [
        any(line in required for line in range(passage.first_line - 1, passage.last_line))
        for passage in parsed.passages
    ]
    return Case(
        row["query_id"],
        parsed,
        row["skill_id"],
        name,
        compute_features(scores, margins, page).astype(float),
        np.array([max(passage.tokens, 1.0) for passage in parsed.passages]),
        np.array(needed, bool),
        shown,
        tokens,
        sorted(required),
    )
