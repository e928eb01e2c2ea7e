"""Loads models and the library before the first task needs them."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from config.errors import MisconfiguredError, PermanentError, TransientError
from graph.entry_filter import EntryFilter
from graph.records import SkillState
from search.process_memory import return_memory
from search.protocol import Filters, SectionSearch, VectorSearch
from search.scoring.cosine_scale import measure_cosine_scale
from skills.batches import batches
from skills.events import QueryAsked
from tasks.policies import EMBED_SECTIONS_QUEUE, EMBED_SKILLS_QUEUE, QUERY_QUEUE
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_skills
from tasks.services import Services
from workers.processes.current_process import freeze_loaded_objects

log = structlog.get_logger()

_READ_AT_ONCE = 5_000
_WITHOUT = ("memory", "rewrite", "rerank", "select")
"""Stages that the warming query skips: it must not call a model or use past tasks."""

_ENCODING_QUEUES = frozenset({EMBED_SKILLS_QUEUE, EMBED_SECTIONS_QUEUE, QUERY_QUEUE})


def warm_up(services: Services, queues: Collection[str]) -> None:
    """Load what the tasks of these queues need: models and, for queries, the library."""
    if _ENCODING_QUEUES.intersection(queues):
        services.encoder.get().encode_queries(["warm up"])
    answers_queries = QUERY_QUEUE in queues
    if answers_queries:
        measure_cosine_scale(services.encoder.get())
        services.library.refresh()
        # An embedded index reads all vectors into memory at the first search.
        vector = services.encoder.get().encode_queries(["warm up"])[0]
        everything = Filters()
        services.index.search_many(
            [VectorSearch(vector, 0, 1, everything), SectionSearch(vector, 1, everything)]
        )
        _rank_for_a_skill(services)
        try:
            services.past_tasks.load()
        except TransientError as error:  # the first query loads them
            log.warning("past tasks are not read yet", reason=str(error))
    if answers_queries and services.reranker is not None:
        try:
            services.reranker.get()
        except PermanentError as error:  # also reported by every query
            log.error("reranker cannot be loaded", reason=str(error))
    if answers_queries and services.language_model is not None:
        try:
            services.language_model.get()  # imports the SDK, which takes half a second
        except MisconfiguredError as error:  # also reported by every query
            log.error("the language model cannot be used", reason=str(error))
    freeze_loaded_objects()
    return_memory()


def _rank_for_a_skill(services: Services) -> None:
    """Rank the library for the description of one of its skills.

    A query reads rows of some thousand skills. With a large library whose files are not in
    memory, the first query would take seconds.
    """
    try:
        found = services.graph.list_entries(EntryFilter(state=SkillState.PUBLISHED), "", 1)
        for entry in found:
            text = " ".join((entry.name, entry.description))
            request = QueryAsked(task=text, without=_WITHOUT)
            context = QueryContext.create(services, request, degrade=False)
            _read_rows(context)
            rank_skills(context)
    except TransientError as error:  # the first query loads it
        log.warning("the library is not read yet", reason=str(error))


def _read_rows(context: QueryContext) -> None:
    """Load safety records of all skills, and vectors that are not mapped, into the caches of this
    process: each query reads those of other skills."""
    snapshot = context.services.library.latest
    keys = snapshot.get_keys(snapshot.pointers)
    context.services.index.load_skill_vectors(keys)
    for batch in batches(keys, _READ_AT_ONCE):
        context.policy_filter.find_violations(batch)
