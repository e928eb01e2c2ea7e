"""Stores, models and other services that tasks work with.

`workers.backend.stores` builds them from the settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from config.settings import Settings
from graph.links.linker import Linker
from graph.protocol import SkillGraph
from search.protocol import Encoder, Reranker, SearchIndex, Vector
from search.review_store import ReviewStore
from search.revision_history import RevisionHistory
from skills.lru_cache import LRUCache
from skills.record import RevisionKey
from tasks.coordination.local import LocalCoordinator
from tasks.coordination.protocol import Coordinator
from tasks.ingest.preparation.prepare import LocalPreparer, Preparer
from tasks.journal.protocol import Journal
from tasks.language_model.answer_store import AnswerStore
from tasks.language_model.protocol import LanguageModel
from tasks.language_model.skill_pairs.protocol import SkillPairStore
from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from tasks.outcomes.links.links_from_use import LinksFromUse
from tasks.outcomes.protocol import OutcomeStore
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.durations import DurationEstimate, StageDurations
from tasks.query.process_state.past_tasks import PastTasks
from tasks.query.process_state.published_library import PublishedLibrary
from tasks.query.process_state.review_cache import ReviewCache
from tasks.query.process_state.revision_facts import RevisionFactCache
from tasks.query.process_state.usage import UsageCounter
from tasks.refine.refined_subjects import RefinedSubjects

if TYPE_CHECKING:
    from tasks.refine.linking.lines import Exchanged

T = TypeVar("T")

MAX_PASSAGE_VECTOR_NUMBERS = 8_000_000
"""Maximum numbers of the passage vectors that are cached: 32 MB, about 400 skills."""

_MAX_EXCHANGED = 20_000
"""Maximum revisions in the cache `Services.exchanged`; one takes some 500 bytes."""


class SendTask(Protocol):
    """Sends a task by name."""

    def __call__(self, name: str, ids: Sequence[object]) -> None:
        """Put the task on its queue; raises TransientError when the broker does not answer."""
        ...


class Lazy(Generic[T]):
    """A value that one thread creates on first use; creation is retried after an exception."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: T | None = None

    def get(self) -> T:
        """Return the value, created now if this is the first call."""
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value

    def get_if_created(self) -> T | None:
        """Return the value, None if it was not created yet."""
        return self._value


@dataclass(slots=True)
class Services:
    """The stores, models and task sender of one process.

    encoder_model: `model` of the encoder, known before it is loaded. language_model: stores its
    answers in `answers` and keeps to the day's tokens; it, `answers` and `skill_pairs` are None if
    no model, or no stage that uses one, is configured. history: None if no superseded revisions are
    kept. review_store, reviews: people's decisions about skills, and the cache of those that policy
    reads. learned_links: None if links do not learn from outcomes. sends_refine: whether published
    skills are sent to be refined automatically. writable: False in a process that only answers
    queries. rerank_duration: of the reranker in this process, by characters. circuit_breakers: None
    if the stores are files; with servers, queries are answered without a server that is down.
    passage_vectors: by model and revision; the index does not store them, since only SkillPager's
    rule (`passages.method = "mmr"`) needs them. exchanged: what revisions take and give, for links
    by the language model. stopping: set once the process stops.
    """

    settings: Settings
    journal: Journal
    index: SearchIndex
    graph: SkillGraph
    library: PublishedLibrary
    encoder: Lazy[Encoder]
    encoder_model: str
    reranker: Lazy[Reranker] | None
    send_task: SendTask
    linker: Linker
    usage_counter: UsageCounter
    outcomes: OutcomeStore
    past_tasks: PastTasks
    language_model: Lazy[LanguageModel] | None = None
    answers: AnswerStore | None = None
    skill_pairs: SkillPairStore | None = None
    learned_links: LinksFromUse | None = None
    history: RevisionHistory | None = None
    review_store: ReviewStore | None = None
    reviews: ReviewCache = field(default_factory=ReviewCache)
    sends_refine: bool = True
    writable: bool = True
    coordinator: Coordinator = field(default_factory=LocalCoordinator)
    preparer: Preparer = field(default_factory=LocalPreparer)
    metrics: MetricsRecorder = field(default_factory=NullMetrics)
    rerank_duration: DurationEstimate = field(default_factory=DurationEstimate)
    stage_durations: StageDurations = field(default_factory=StageDurations)
    circuit_breakers: CircuitBreakers | None = None
    fact_cache: RevisionFactCache = field(default_factory=RevisionFactCache)
    passage_vectors: LRUCache[tuple[str, RevisionKey], Vector] = field(
        default_factory=lambda: LRUCache(MAX_PASSAGE_VECTOR_NUMBERS)
    )
    refined: RefinedSubjects = field(default_factory=RefinedSubjects)
    exchanged: LRUCache[RevisionKey, Exchanged] = field(
        default_factory=lambda: LRUCache(_MAX_EXCHANGED)
    )
    stopping: threading.Event = field(default_factory=threading.Event)

    def record_use(self, skill_ids: Sequence[str]) -> None:
        """Count that these skills were chosen for a bundle; does nothing in a read-only process."""
        if self.writable and skill_ids:
            self.usage_counter.record(skill_ids)
