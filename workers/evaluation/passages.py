"""Lines of a skill that each method of passage selection returns for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from config.bundle_settings import PassageSettings
from config.errors import UsageError
from graph.links.passage_links import link_passages
from search.protocol import StoredRevision, Vector
from search.text.query_understanding import understand
from skills.passages import (
    PassageInput,
    PassageQuery,
    PassageWeights,
    get_line_ranges,
    passage_texts,
    select_all,
    select_by_graph_walk,
    select_mmr,
    select_top_k,
    split_into_chunks,
)
from skills.record import ParsedSkill
from tasks.encode import encode_cached
from tasks.query.select_passages import make_passage_query, mmr_weights, select_skill_passages
from tasks.services import Services
from workers.evaluation.predictions import read_published_revisions

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class SelectedLines:
    """The lines selected for one query: ranges of the SKILL.md in order."""

    query: dict[str, Any]
    revision: StoredRevision
    ranges: Ranges


def select_lines(
    services: Services,
    queries: Sequence[dict[str, Any]],
    method: str,
    miss: float,
    without: tuple[str, ...],
) -> Iterator[SelectedLines]:
    """Yield the lines of the skill of each query.

    method: `f` selects as a query does, by section vectors, or by words in a language that the
    encoder does not support. The baselines get the vectors that their definition needs. miss: see
    `PassageNeeds.select_enough`. Raises UsageError for a method that needs vectors when `without`
    switches off `paging`.
    """
    lexical_only = "paging" in without
    if lexical_only and method not in ("f", "full"):
        raise UsageError(
            f"--method {method} needs vectors, which --without paging switches off; "
            "drop one of them"
        )
    revisions = read_published_revisions(services, [query["skill_id"] for query in queries])
    settings = services.settings.passages.model_copy(update={"miss": miss})
    inputs: dict[str, PassageInput] = {}
    for query in queries:
        revision = revisions[query["skill_id"]]
        if method == "f":
            ranges = _select_by_default_method(
                services, revision, query["query"], settings, lexical_only
            )
        else:
            skill_id = revision.key.skill_id
            if skill_id not in inputs:
                inputs[skill_id] = _make_passage_input(services, revision.parsed, method)
            ranges = _select_by_baseline(
                services, inputs[skill_id], query["query"], method, mmr_weights(settings)
            )
        yield SelectedLines(query, revision, ranges)


def _select_by_default_method(
    services: Services,
    revision: StoredRevision,
    text: str,
    settings: PassageSettings,
    lexical_only: bool,
) -> Ranges:
    understanding = understand(text)
    encoder = services.encoder.get()
    vector = vectors = None
    if not lexical_only and understanding.language in encoder.languages:
        vector = encoder.encode_queries([understanding.text])[0]
        vectors = services.index.get_section_vectors([revision.key]).get(revision.key)
    query = make_passage_query(understanding, vector)
    plan = select_skill_passages(revision, query, vectors, settings)
    return get_line_ranges(revision.parsed, plan.passages[: plan.enough])


def _select_by_baseline(
    services: Services, passage_input: PassageInput, text: str, method: str, weights: PassageWeights
) -> Ranges:
    """Return the lines that a baseline method selects."""
    parsed = passage_input.parsed
    if method == "full" or not parsed.passages:
        return get_line_ranges(parsed, select_all(passage_input))
    vector = services.encoder.get().encode_queries([understand(text).text])[0]
    query = PassageQuery(vector, np.empty(0, np.uint64), np.empty(0, np.float32))
    if method in ("mmr", "chunks"):
        return get_line_ranges(
            parsed, select_mmr(query, passage_input, weights), context=method == "mmr"
        )
    edges = [
        (link.source, link.target) for link in link_passages(parsed, passage_input.passage_vectors)
    ]
    select = select_top_k if method == "topk" else select_by_graph_walk
    return get_line_ranges(parsed, select(query, passage_input, edges))


def _make_passage_input(services: Services, parsed: ParsedSkill, method: str) -> PassageInput:
    """Return a skill with the passage vectors that a baseline needs, and without its terms."""
    if method == "chunks":
        parsed = split_into_chunks(parsed)
    vectors: Vector | None = None
    if method != "full" and parsed.passages:
        vectors = encode_cached(services, passage_texts(parsed))
    offsets = np.zeros(len(parsed.passages) + 1, np.int32)
    no_terms = np.empty(0, np.uint64), np.empty(0, np.uint16)
    return PassageInput(parsed, offsets, *no_terms, passage_vectors=vectors)
