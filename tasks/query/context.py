"""Context of one query: data that its stages share, from services to timings."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from config.errors import TransientError, UsageError
from config.language_model_settings import ModelStage
from config.settings import OPTIONAL_STAGES
from config.tracing import span
from graph.protocol import SkillGraph
from graph.records import SourceAccess
from graph.visible_graph import VisibleGraph, find_visible_sources
from search.protocol import Filters, SearchIndex
from search.visible_index import VisibleIndex
from skills.access import UNRESTRICTED
from skills.events import QueryAsked
from tasks.history.query_pins import read_pinned
from tasks.policies import QUERY, Deadline
from tasks.query.degradation import Degradations, with_fallbacks
from tasks.query.explanation.rank_recorder import RankRecorder
from tasks.query.policy_filter import PolicyFilter
from tasks.query.session.state import NO_SESSION, Asker, SessionState, load_session
from tasks.services import Services

RECORD_STAGE = "record"
"""Name of the step after all stages, in which the answer is recorded."""

_STAGES = ("encode", "memory", "retrieve", "score", "rerank", "diffuse", "probability", "choose",
           "select_passages", "bundle", RECORD_STAGE)  # fmt: skip
"""Stages from the first stage that may be left out for lack of time."""

_NO_TIME = {
    "encode": "ranked by words only: too little time was left to encode the task",
    "diffuse": "ranked without links: too little time was left",
}


def _ignore_stage(stage: str) -> None:
    del stage


@dataclass(slots=True)
class StageTimings:
    """Milliseconds of each stage, in the order they ran.

    on_stage_start: called with the name of each stage before it runs; an exception that it raises
    ends the query.
    """

    on_stage_start: Callable[[str], None] = _ignore_stage
    milliseconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Time a stage and trace it as a span."""
        self.on_stage_start(stage)
        started = time.perf_counter()
        with span(f"query {stage}"):
            yield
        self.milliseconds[stage] = round((time.perf_counter() - started) * 1000, 2)


@dataclass(slots=True)
class ModelCalls:
    """Time and reports of the model's calls in one query.

    seconds: time left for further calls. reports: by stage, for `explain`.
    """

    seconds: float
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)

    def report(self, stage: ModelStage, **details: object) -> None:
        """Add details of a stage to its report."""
        self.reports.setdefault(stage, {}).update(details)


@dataclass(frozen=True, slots=True)
class QueryContext:
    """State of one query as it passes through the stages.

    services: with fallbacks for servers that do not answer; each use of a fallback is recorded in
    `degradations`. wanted: deadline of the asker. filters: filters of the request. model_calls:
    calls to the language model. session: session of the request, an empty one without. owner: name
    of the token that asks, "" for the user of this machine. visible: sources whose skills the asker
    may see, None for all; `services` are limited to the skills of these sources. rank_recorder:
    records the ranks of the skills in `explain_skills` of the request.
    """

    request: QueryAsked
    query_id: str
    services: Services
    deadline: Deadline
    wanted: Deadline
    filters: Filters
    policy_filter: PolicyFilter
    degradations: Degradations
    timings: StageTimings
    model_calls: ModelCalls
    session: SessionState = NO_SESSION
    owner: str = ""
    visible: frozenset[str] | None = None
    rank_recorder: RankRecorder = field(default_factory=lambda: RankRecorder(()))

    @classmethod
    def create(
        cls,
        services: Services,
        request: QueryAsked,
        deadline: Deadline | None = None,
        timings: StageTimings | None = None,
        *,
        query_id: str = "",
        asker: Asker | None = None,
        wanted_seconds: float | None = None,
        apply_policy: bool = True,
        degrade: bool = True,
    ) -> QueryContext:
        """Return the context of a request; reads the sources from the catalog.

        deadline: by default the time limit of a query from now on. wanted_seconds: time for which
        the answer is wanted, by default that limit. asker: by default the user of this machine,
        now. apply_policy: False ranks all skills, including those that the policy of the settings
        withholds. degrade: False makes the stages raise TransientError if a server does not answer.
        """
        degradations, asker = Degradations(), asker or Asker("", time.time(), UNRESTRICTED)
        stores = services
        if degrade:
            services = with_fallbacks(services, degradations)
        else:
            services = replace(services, circuit_breakers=None)
        is_needed = apply_policy or not asker.reader.sees_everything
        access = _read_access(services, asker) if is_needed else SourceAccess([], {})
        default_groups = services.settings.access.default_groups
        visible = find_visible_sources(access, asker.reader, default_groups)
        services = _restrict(services, visible)
        # Without fallbacks: a catalog that does not answer would seem to lack the pinned skills.
        pinned = read_pinned(_restrict(stores, visible), request.pins)
        if apply_policy:
            policy_filter = PolicyFilter(
                services.settings.policy,
                services.fact_cache,
                services.graph,
                access.sources,
                services.settings.language_model.judge,
                services.reviews.get(),
                services.index.get_revisions,
                pinned,
            )
        else:
            policy_filter = PolicyFilter.allow_all(services.graph, pinned)
        return cls(
            request,
            query_id,
            services,
            deadline or Deadline(QUERY.time_limit),
            Deadline(QUERY.time_limit if wanted_seconds is None else wanted_seconds),
            Filters(**request.filters.model_dump()),
            policy_filter,
            degradations,
            timings or StageTimings(),
            ModelCalls(services.settings.language_model.query_milliseconds / 1000),
            load_session(services, asker, request, query_id, degradations, visible),
            asker.owner,
            visible,
            RankRecorder(request.explain_skills),
        )

    def is_on(self, stage: str) -> bool:
        """Return whether the request leaves an optional stage on."""
        return stage not in self.request.without

    def has_time(self, stage: str) -> bool:
        """Return whether the answer will still be wanted after this stage and the stages that
        always follow it, by their recent durations."""
        durations = self.services.stage_durations
        following = _STAGES[_STAGES.index(stage) + 1 :]
        needed = durations.estimate_seconds(
            (stage, *(one for one in following if one != "diffuse"))
        )
        if needed <= self.wanted.remaining():
            return True
        durations.forget_slowest(stage)
        self.degradations.add(_NO_TIME[stage])
        return False

    def uses_model(self, stage: ModelStage) -> bool:
        """Return whether a stage of this query asks the language model."""
        services = self.services
        return (
            services.language_model is not None
            and services.settings.language_model.uses(stage)
            and self.is_on(stage)
        )

    @property
    def task(self) -> str:
        """The task of the request, or the last task of the session if the request has none."""
        return self.request.task if self.request.task.strip() else self.session.task

    @property
    def text(self) -> str:
        """Text to search for: the obstacle, if any, and the task."""
        return f"{self.obstacle}\n\n{self.task}" if self.obstacle else self.task

    @property
    def obstacle(self) -> str:
        """The obstacle of the request, "" for white space alone."""
        return self.request.obstacle.replace("\0", " ").strip()

    @property
    def can_degrade(self) -> bool:
        """Whether the query continues without a server that does not answer."""
        return self.services.circuit_breakers is not None

    @property
    def budget(self) -> int:
        """Maximum tokens of the bundle."""
        return self.request.budget or self.services.settings.choice.budget

    @property
    def top(self) -> int:
        """Maximum number of skills in the bundle, without dependencies."""
        return self.request.top or self.services.settings.choice.top


def _restrict(services: Services, visible: frozenset[str] | None) -> Services:
    """Return these services with stores limited to the skills of the visible sources.

    So no stage can read a hidden skill. Returned unchanged for None, which is all sources.
    """
    if visible is None:
        return services
    # These views have the methods that a query calls, and no method that changes the library.
    return replace(
        services,
        graph=cast(SkillGraph, VisibleGraph(services.graph, visible)),
        index=cast(SearchIndex, VisibleIndex(services.index, visible)),
        library=services.library.restricted_to(visible),
    )


def _read_access(services: Services, asker: Asker) -> SourceAccess:
    """Return sources and their groups; nothing if the catalog does not answer and the asker sees
    everything."""
    try:
        return services.graph.read_access()
    except TransientError:
        # Without servers nothing degrades, and access is never guessed.
        if services.circuit_breakers is None or not asker.reader.sees_everything:
            raise
        return SourceAccess([], {})


def check_query(request: QueryAsked, max_characters: int) -> None:
    """Raise UsageError for an empty or overlong task or obstacle, or an unknown stage."""
    if not (request.task.strip() or request.obstacle.strip() or request.resend):
        raise UsageError("the task is empty; describe what is to be done")
    for name, text in (("task", request.task), ("obstacle", request.obstacle)):
        if len(text) > max_characters:
            raise UsageError(
                f"the {name} has {len(text)} characters, the limit is {max_characters} "
                "(limits.query_characters); send the part that describes what is to be done"
            )
    check_stages(request.without)


def check_stages(stages: Collection[str]) -> None:
    """Raise UsageError if any of these is not the name of an optional stage."""
    unknown = set(stages) - set(OPTIONAL_STAGES)
    if unknown:
        raise UsageError(
            f"unknown stage {', '.join(sorted(unknown))}; stages: {', '.join(OPTIONAL_STAGES)}"
        )
