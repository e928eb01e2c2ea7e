"""Opens the stores of a deployment, embedded or distributed, by its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import UsageError
from config.settings import Settings
from graph.links.linker import Linker
from graph.protocol import SkillGraph
from search.models.batch_encoder import BatchEncoder
from search.models.identity import EncoderIdentity
from search.models.load_models import encoder_identity, load_encoder, load_reranker
from search.protocol import Encoder, Reranker, SearchIndex
from search.review_store import ReviewStore
from search.revision_history import HistoryLimits, RevisionHistory
from search.scoring.record_source import MemoryRecords, RecordSource
from search.skill_analysis import ANALYSIS_VERSION
from skills.skill_policy import check_rule_ids
from tasks.coordination.local import LocalCoordinator
from tasks.coordination.protocol import Coordinator
from tasks.ingest.preparation.campaign_indicators import load_indicators
from tasks.journal.protocol import Journal
from tasks.language_model.answer_store import AnswerStore
from tasks.language_model.protocol import LanguageModel
from tasks.language_model.skill_pairs.protocol import SkillPairStore
from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from tasks.outcomes.links.links_from_use import LinksFromUse
from tasks.outcomes.protocol import OutcomeStore
from tasks.policies import QUERY
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.past_tasks import PastTasks
from tasks.query.process_state.published_library import PublishedLibrary
from tasks.query.process_state.review_cache import CHECK_SECONDS, ReviewCache
from tasks.query.process_state.revision_facts import RevisionFactCache
from tasks.query.process_state.saved_library import SavedLibraryFile
from tasks.query.process_state.usage import UsageCounter
from tasks.refine.completion.completions import completion_origins
from tasks.refine.linking.link_origin import link_kind
from tasks.services import Lazy, SendTask, Services
from workers.backend.model_stores import open_answers, open_skill_pairs
from workers.library.skill_reader import Stores as ReaderStores

if TYPE_CHECKING:
    from tasks.coordination.redis import QueueDepth, RedisCoordinator


def open_graph(settings: Settings, stack: contextlib.ExitStack, *, writable: bool) -> SkillGraph:
    """Open the catalog and its links, closed with the stack.

    writable: also creates or migrates its schema. Raises UsageError if there is no library to
    read.
    """
    if settings.distributed:
        from graph.neo4j.store import Neo4jSkillGraph

        served = Neo4jSkillGraph(settings.servers, writable=writable)
        stack.callback(served.close)
        if writable:
            served.migrate()
        return served
    from graph.local.store import SqliteSkillGraph

    if not writable:
        require_library(settings)
    graph = SqliteSkillGraph(settings.home / "graph.db", writable=writable)
    stack.callback(graph.close)
    return graph


def require_library(settings: Settings) -> None:
    """Raise UsageError if a library in a home is called for, and there is none."""
    if not settings.distributed and not (settings.home / "graph.db").exists():
        raise UsageError(f"no library in {settings.home} yet; run `skillbus sync DIR` first")


def open_index(
    settings: Settings,
    stack: contextlib.ExitStack,
    *,
    writable: bool,
    identity: EncoderIdentity | Encoder | None = None,
) -> SearchIndex:
    """Open the search index of the encoder that the settings name, closed with the stack."""
    encoder = identity or encoder_identity(settings.encoder)
    index: SearchIndex
    if settings.distributed:
        from search.elastic.index import ElasticsearchIndex

        index = ElasticsearchIndex(
            settings.servers, encoder.model, encoder.dimension, writable=writable
        )
    else:
        from search.local.index import LocalSearchIndex

        index = LocalSearchIndex(
            settings.home / "index", encoder.model, encoder.dimension, writable=writable
        )
    stack.callback(index.close)
    return index


def check_no_replaced_index(settings: Settings) -> None:
    """Raise UsageError while there is another index than the one in use: it has revisions too."""
    if settings.distributed:
        from search.elastic.replacement import list_superseded

        others = list_superseded(settings.servers)
    else:
        from workers.backend.local_replacement import list_other_indexes

        others = list_other_indexes(settings.home)
    if others:
        raise UsageError(
            f"{', '.join(others)}, made by a reindex, may contain the skill too: finish the "
            "reindex, run `skillbus reindex --drop-old`, then purge"
        )


def open_journal(settings: Settings, stack: contextlib.ExitStack, *, writable: bool) -> Journal:
    """Open the journal, closed with the stack. In a home it is in memory unless `writable`."""
    journal: Journal
    if settings.distributed:
        from tasks.broker.redis_connection import connect
        from tasks.journal.redis import RedisJournal

        journal = RedisJournal(connect(settings.servers), settings.servers)
    else:
        from tasks.journal.sqlite import SqliteJournal

        journal = SqliteJournal(settings.home / "journal.db" if writable else ":memory:")
    stack.callback(journal.close)
    return journal


def open_coordinator(
    settings: Settings, stack: contextlib.ExitStack, depth: QueueDepth, worker: str
) -> RedisCoordinator:
    """Open the coordinator of the processes of a distributed deployment, closed with the stack.

    depth: returns the number of messages in a queue. worker: name of this process.
    """
    from tasks.broker.redis_connection import connect
    from tasks.coordination.redis import RedisCoordinator

    client = connect(settings.servers)
    stack.callback(client.close)
    return RedisCoordinator(client, settings.servers, depth, worker)


def open_outcomes(settings: Settings, stack: contextlib.ExitStack) -> OutcomeStore:
    """Open answered queries and their outcomes, closed with the stack. In a home they are shared by
    all processes that use it, including those that only read the library."""
    outcomes: OutcomeStore
    if settings.distributed:
        from tasks.broker.redis_connection import connect
        from tasks.outcomes.redis import RedisOutcomeStore

        outcomes = RedisOutcomeStore(connect(settings.servers, binary=True), settings.servers)
    else:
        from tasks.outcomes.sqlite import SqliteOutcomeStore

        outcomes = SqliteOutcomeStore(settings.home / "outcomes.db")
    stack.callback(outcomes.close)
    return outcomes


def open_library_outcomes(settings: Settings, stack: contextlib.ExitStack) -> OutcomeStore:
    """Open the outcomes of an existing library as `open_outcomes` does; raises UsageError if there
    is none in the home."""
    require_library(settings)
    return open_outcomes(settings, stack)


def open_history(settings: Settings, stack: contextlib.ExitStack) -> RevisionHistory:
    """Open the superseded revisions of skills, closed with the stack; they stay readable when the
    settings keep no more."""
    limits = HistoryLimits(settings.history.revisions, settings.history.bytes)
    history: RevisionHistory
    if settings.distributed:
        from search.elastic.revision_history import ElasticsearchRevisionHistory

        history = ElasticsearchRevisionHistory(settings.servers, limits)
    else:
        from tasks.history.sqlite import SqliteRevisionHistory

        history = SqliteRevisionHistory(settings.home / "history.db", limits)
    stack.callback(history.close)
    return history


def open_review_store(settings: Settings, stack: contextlib.ExitStack) -> ReviewStore:
    """Open the decisions of people about skills, closed with the stack."""
    store: ReviewStore
    if settings.distributed:
        from search.elastic.review_store import ElasticsearchReviewStore

        store = ElasticsearchReviewStore(settings.servers)
    else:
        from tasks.history.sqlite_reviews import SqliteReviewStore

        store = SqliteReviewStore(settings.home / "history.db")
    stack.callback(store.close)
    return store


def open_review_cache(settings: Settings, store: ReviewStore) -> ReviewCache:
    """Return an in-memory copy of the decisions that the policy reads from that store."""
    return ReviewCache(store, CHECK_SECONDS if settings.distributed else 0.0)


def open_reader_stores(
    settings: Settings, graph: SkillGraph, stack: contextlib.ExitStack
) -> ReaderStores:
    """Open the stores of a reader of skills with this catalog, for reading."""
    index = open_index(settings, stack, writable=False)
    reviews = open_review_cache(settings, open_review_store(settings, stack))
    return graph, index, open_answers(settings, stack), reviews


def open_linker(
    settings: Settings,
    graph: SkillGraph,
    pairs: SkillPairStore | None,
    learned_links: LinksFromUse | None,
) -> Linker:
    """Open the linker of skills.

    pairs: verdicts of the language model, from which links are made if the stage `links` is on.
    learned_links: links learned from outcomes, None for no such links.
    """
    kind = link_kind(settings)
    if pairs is None or kind is None:
        return Linker(graph, learned_links=learned_links)
    from tasks.refine.linking.verdict_links import StoredVerdictLinks

    verdict_links = StoredVerdictLinks(graph, pairs, kind)
    return Linker(graph, verdict_links=verdict_links, learned_links=learned_links)


def send_nothing(name: str, ids: Sequence[object]) -> None:
    """Refuse to send a task: the `SendTask` of services that only read."""
    raise AssertionError(f"reading sends no tasks ({name}, {len(ids)} ids)")


def open_services(
    settings: Settings,
    stack: contextlib.ExitStack,
    send_task: SendTask,
    *,
    writable: bool,
    coordinator: Coordinator | None = None,
    encoder: Encoder | None = None,
    metrics: MetricsRecorder | None = None,
) -> Services:
    """Open the services of tasks, in a process that runs tasks; closed with the stack.

    encoder: used instead of the encoder that the settings name. metrics: records how tasks run.
    """
    coordinator, metrics = coordinator or LocalCoordinator(), metrics or NullMetrics()
    load_indicators(settings.policy.indicators)
    check_rule_ids(settings.policy.suppressed_rules, "policy.suppressed_rules")
    journal = open_journal(settings, stack, writable=writable)
    graph = open_graph(settings, stack, writable=writable)
    identity = encoder or encoder_identity(settings.encoder)
    index = open_index(settings, stack, writable=writable, identity=identity)
    answers = open_answers(settings, stack)
    skill_pairs = open_skill_pairs(settings, stack)
    outcomes = open_outcomes(settings, stack)
    review_store = open_review_store(settings, stack)
    learning = settings.learning
    learned_links = LinksFromUse(outcomes, graph, learning) if learning.links else None
    circuit_breakers = CircuitBreakers() if settings.distributed else None
    facts = RevisionFactCache()
    origins = completion_origins(settings.language_model)
    loaded = Lazy(lambda: encoder or _with_metrics(load_encoder(settings.encoder), metrics))
    return Services(
        settings=settings,
        journal=journal,
        index=index,
        graph=graph,
        library=PublishedLibrary(
            graph,
            _open_records(index, origins),
            circuit_breakers,
            facts,
            _find_saved_library(settings.home, graph, index, origins),
        ),
        fact_cache=facts,
        circuit_breakers=circuit_breakers,
        encoder=loaded,
        encoder_model=identity.model,
        reranker=_lazy_reranker(settings),
        linker=open_linker(settings, graph, skill_pairs, learned_links),
        outcomes=outcomes,
        learned_links=learned_links,
        history=open_history(settings, stack) if settings.history.revisions else None,
        review_store=review_store,
        reviews=open_review_cache(settings, review_store),
        past_tasks=PastTasks(outcomes, loaded.get, settings.learning),
        usage_counter=UsageCounter(graph),
        language_model=_lazy_language_model(settings, stack, answers, coordinator, metrics),
        answers=answers,
        skill_pairs=skill_pairs,
        writable=writable,
        send_task=send_task,
        coordinator=coordinator,
        metrics=metrics,
    )


def _open_records(index: SearchIndex, origins: Collection[str]) -> RecordSource:
    """Return the source of candidates' records: the files of a home, or, with servers, memory."""
    from search.local.index import LocalSearchIndex

    if isinstance(index, LocalSearchIndex):
        return index.open_records(origins, QUERY.time_limit)
    return MemoryRecords(index, origins, QUERY.time_limit)


def _find_saved_library(
    home: Path, graph: SkillGraph, index: SearchIndex, origins: Collection[str]
) -> SavedLibraryFile | None:
    """Return the file with the saved statistics of a home; None if they cannot be saved.

    The file is in the folder of the index, as a new index replaces both together.
    """
    from graph.local.store import SqliteSkillGraph
    from search.local.index import LocalSearchIndex

    if not isinstance(index, LocalSearchIndex) or not isinstance(graph, SqliteSkillGraph):
        return None
    if graph.identity is None:
        return None
    known = (str(ANALYSIS_VERSION), graph.identity, index.get_identity(), *sorted(origins))
    identity = "\n".join(known)
    return SavedLibraryFile(home / "index" / "statistics", identity)


def _with_metrics(encoder: Encoder, metrics: MetricsRecorder) -> Encoder:
    if isinstance(encoder, BatchEncoder):
        encoder.on_encoded = metrics.record_encoding
    return encoder


def _lazy_reranker(settings: Settings) -> Lazy[Reranker] | None:
    if not settings.reranker.model:
        return None
    return Lazy(lambda: load_reranker(settings.reranker))


def _lazy_language_model(
    settings: Settings,
    stack: contextlib.ExitStack,
    answers: AnswerStore | None,
    coordinator: Coordinator,
    metrics: MetricsRecorder,
) -> Lazy[LanguageModel] | None:
    """Return the language model, which is opened on first use and closed before its answers are."""
    if answers is None:
        return None

    def open_model() -> LanguageModel:
        from tasks.language_model.metered import MeteredLanguageModel
        from tasks.language_model.openai_client import OpenAILanguageModel

        model = MeteredLanguageModel(
            OpenAILanguageModel(settings.language_model),
            answers,
            settings.language_model,
            coordinator,
            metrics,
        )
        stack.callback(model.close)
        return model

    return Lazy(open_model)
