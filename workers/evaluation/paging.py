"""Lines of a skill that each method of paging picks for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from config.errors import UsageError
from graph.links.passage_links import passage_links
from search.protocol import StoredRevision, Vector
from search.text.query_understanding import understand
from skills.passages import (
    PageInput,
    PageQuery,
    chunked,
    everything,
    greedy_graph,
    lines_of,
    mmr,
    passage_texts,
    top_k,
)
from skills.record import ParsedSkill
from tasks.embedding import encode_cached
from tasks.query.assemble import page_skill
from tasks.query.choose import Chosen
from tasks.services import Services
from workers.evaluation.predictions import published

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Picked:
    """What a method picks for one query: line ranges of the SKILL.md in order."""

    query: dict[str, Any]
    revision: StoredRevision
    ranges: Ranges


def picked_lines(
    services: Services,
    queries: Sequence[dict[str, Any]],
    method: str,
    gap: float,
    without: tuple[str, ...],
) -> Iterator[Picked]:
    """For each query the lines of its one skill that a method would send.

    F sees what a query sees: section vectors, and none in a language that the encoder does not
    know. The others are given the vectors that their definition asks for. Raises UsageError for a
    method that needs vectors where paging by meaning is switched off.
    """
    words_only = "paging" in without
    if words_only and method not in ("f", "full"):
        raise UsageError(
            f"--method {method} compares vectors, which --without paging leaves out; "
            "give one or the other"
        )
    revisions = published(services, [query["skill_id"] for query in queries])
    pages: dict[str, PageInput] = {}
    for query in queries:
        revision = revisions[query["skill_id"]]
        if method == "f":
            ranges = _by_worth(services, revision, query["query"], gap, words_only)
        else:
            skill_id = revision.key.skill_id
            if skill_id not in pages:
                pages[skill_id] = _page(services, revision.parsed, method)
            ranges = _compared(services, pages[skill_id], query["query"], method)
        yield Picked(query, revision, ranges)


def _by_worth(
    services: Services, revision: StoredRevision, text: str, gap: float, words_only: bool
) -> Ranges:
    understanding = understand(text)
    order = np.argsort(understanding.ids)
    encoder = services.encoder.get()
    vector = vectors = None
    if not words_only and understanding.language in encoder.languages:
        vector = encoder.encode([understanding.text])[0]
        vectors = services.index.section_vectors([revision.key]).get(revision.key)
    query = PageQuery(vector, understanding.ids[order], understanding.weights[order])
    chosen = Chosen(revision.key.skill_id, 1.0, ())
    paged = page_skill(chosen, revision, "", query, vectors, gap)
    return lines_of(revision.parsed, [index for index, _ in paged.wanted])


def _compared(services: Services, page: PageInput, text: str, method: str) -> Ranges:
    """The lines that a method of comparison picks."""
    parsed = page.parsed
    if method == "full" or not parsed.passages:
        return lines_of(parsed, everything(page))
    vector = services.encoder.get().encode([understand(text).text])[0]
    query = PageQuery(vector, np.empty(0, np.uint64), np.empty(0, np.float32))
    if method in ("mmr", "chunks"):
        return lines_of(parsed, mmr(query, page), context=method == "mmr")
    edges = [(link.source, link.target) for link in passage_links(parsed, page.passage_vectors)]
    pick = top_k if method == "topk" else greedy_graph
    return lines_of(parsed, pick(query, page, edges))


def _page(services: Services, parsed: ParsedSkill, method: str) -> PageInput:
    """A skill with the vectors that a method of comparison needs; its words are not asked for."""
    if method == "chunks":
        parsed = chunked(parsed)
    vectors: Vector | None = None
    if method != "full" and parsed.passages:
        vectors = encode_cached(services, passage_texts(parsed))
    offsets = np.zeros(len(parsed.passages) + 1, np.int32)
    nothing = np.empty(0, np.uint64), np.empty(0, np.uint16)
    return PageInput(parsed, offsets, *nothing, passage_vectors=vectors)
