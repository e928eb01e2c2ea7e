"""A task's bundle: understand, retrieve, rerank, diffuse, choose, page, bundle (spec §5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np

from config.errors import UsageError
from config.settings import OPTIONAL_STAGES
from graph.protocol import Link, LinkType, SkillGraph
from search.protocol import Filters, SearchIndex, StoredRevision, Vector
from skills.bundle.markdown import summarise_withheld
from skills.bundle.model import Bundle, LeftOutSkill, Withheld
from skills.events import QueryAsked, QueryFilters
from skills.passages import PassageQuery, passage_texts
from skills.record import RevisionKey
from tasks.encode import encode_cached, supports_language
from tasks.ingest.embed_sections import embed_revisions
from tasks.policies import Deadline
from tasks.query.assemble import SkillPassages, assemble, select_skill_passages
from tasks.query.choose import SkillChoice, choose_skills
from tasks.query.degradation import Degradations, DegradingGraph, DegradingIndex
from tasks.query.diffuse import diffuse
from tasks.query.explain import explain_ranking
from tasks.query.fallback_revision import read_or_fall_back
from tasks.query.policy_filter import PolicyFilter
from tasks.query.rerank import rerank
from tasks.query.retrieve import EXPLAINED_CANDIDATES, Ranking, rank_candidates
from tasks.query.withheld import (
    FinalChoice,
    collect_withheld,
    filter_linked_hits,
    finalize_choice,
    is_evident,
    make_policy_filter,
)
from tasks.services import Services
from tasks.sources.readers import get_skill_location

_LINKS = 20
_TOKENS_A_SECOND = 6000.0
"""What one thread of a common processor encodes: it only decides whether to begin."""
_LINK_PRIORITY = {
    LinkType.CONFLICT: 0,
    LinkType.DEPENDENCY: 1,
    LinkType.WORKFLOW: 2,
    LinkType.ALTERNATIVE: 3,
    LinkType.SEMANTIC: 4,
}


def _ignore_stage(stage: str) -> None:
    """Begin a stage of a query that nobody watches."""
    del stage


@dataclass(slots=True)
class StageTimings:
    """Milliseconds of each stage, in the order they ran.

    begins: called with each stage before it; what it raises ends the query.
    """

    on_stage_start: Callable[[str], None] = _ignore_stage
    milliseconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Time a stage."""
        self.on_stage_start(stage)
        started = time.perf_counter()
        yield
        self.milliseconds[stage] = round((time.perf_counter() - started) * 1000, 2)


def answer_query(
    services: Services,
    deadline: Deadline,
    query_id: str,
    request: QueryAsked,
    timings: StageTimings | None = None,
) -> Bundle:
    """The bundle for a task. Raises UsageError for a query that cannot be answered.

    Where stores are servers, one that is away is done without, and the bundle says so.
    """
    settings = services.settings
    check_query(request, settings.limits.query_characters)
    degradations = Degradations()
    services = _with_degradation(services, degradations)
    timings = timings or StageTimings()
    policy_filter = make_policy_filter(services)
    ranking = rank_skills(services, deadline, request, timings, policy_filter)
    shell = Bundle(
        query_id=query_id,
        status="NO_SKILL_HIT",
        reason=_no_hit_reason(services, request, ranking),
        task=request.task,
        budget=request.budget or settings.choice.budget,
        degraded=tuple(ranking.degraded),
        timings_ms=timings.milliseconds,
    )
    found = _Selection(ranking)
    if ranking.hits and (_is_floor_off(request) or is_evident(ranking, settings.choice)):
        found = _select(services, deadline, request, policy_filter, ranking, timings)
    if found.passages:
        with timings.measure("bundle"):
            bundle = _build_hit(services, request, shell, found, degradations)
        services.record_use([skill.skill_id for skill in bundle.skills])
    else:
        bundle = _build_no_hit(services, request, shell, found, degradations)
    bundle = bundle.model_copy(update={"timings_ms": timings.milliseconds})
    if not request.explain:
        return bundle
    details = explain_ranking(found.ranking, found.choice, bundle, settings.choice)
    return bundle.model_copy(update={"explain": details})


@dataclass(frozen=True, slots=True)
class _Selection:
    """What was chosen of a ranking, with its passages: all that was chosen may be gone by then.

    lost: what was done without on the way.
    """

    ranking: Ranking
    choice: SkillChoice = field(default_factory=SkillChoice)
    passages: Sequence[SkillPassages] = ()
    lost: Sequence[str] = ()


def _select(
    services: Services,
    deadline: Deadline,
    request: QueryAsked,
    policy_filter: PolicyFilter,
    ranking: Ranking,
    timings: StageTimings,
) -> _Selection:
    """Choose, read what was chosen, and page it."""
    choose = partial(_choose, services, policy_filter, _top(services, request))
    with timings.measure("choose"):
        choice = choose(ranking)
    with timings.measure("select_passages"):
        lost: list[str] = []
        read = partial(read_or_fall_back, services, policy_filter, lost)
        final = finalize_choice(ranking, choice, policy_filter, choose, read)
        selected = _select_passages(services, deadline, request, policy_filter, final, lost)
    return _Selection(final.ranking, final.choice, selected, lost)


def _build_hit(
    services: Services,
    request: QueryAsked,
    shell: Bundle,
    found: _Selection,
    degradations: Degradations,
) -> Bundle:
    """The bundle with what was found, within its budget."""
    links, left_out = (
        _select_links(services, found.passages),
        _left_out(found.choice, request.explain),
    )
    filled = {
        "status": "SKILL_HIT",
        "reason": "",
        "degraded": (*shell.degraded, *dict.fromkeys(found.lost), *degradations.reasons),
        "withheld": _collect_withheld(services, request, found),
    }
    return assemble(shell.model_copy(update=filled), found.passages, links, left_out)


def _build_no_hit(
    services: Services,
    request: QueryAsked,
    shell: Bundle,
    found: _Selection,
    degradations: Degradations,
) -> Bundle:
    """The bundle without a skill, and why it has none."""
    withheld = _collect_withheld(services, request, found)
    kept = f"nothing about the task may be sent: {summarise_withheld(withheld)}"
    why = {"reason": kept} if withheld.count else {}
    degraded = (*shell.degraded, *degradations.reasons)
    return shell.model_copy(update={"degraded": degraded, "withheld": withheld, **why})


def _collect_withheld(services: Services, request: QueryAsked, found: _Selection) -> Withheld:
    floor = not _is_floor_off(request)
    top = _top(services, request)
    return collect_withheld(found.ranking, found.choice, services.settings, top, floor=floor)


def _is_floor_off(request: QueryAsked) -> bool:
    return "floor" in request.without


def _top(services: Services, request: QueryAsked) -> int:
    return request.top or services.settings.choice.top


def _with_degradation(services: Services, degradations: Degradations) -> Services:
    """These services for one query, which notes what it had to do without."""
    if services.circuit_breakers is None:
        return services
    index = DegradingIndex(services.index, services.circuit_breakers.index, degradations)
    graph = DegradingGraph(services.graph, services.circuit_breakers.graph, degradations)
    # They offer what a query calls, and nothing that changes the library.
    return replace(services, index=cast(SearchIndex, index), graph=cast(SkillGraph, graph))


def _no_hit_reason(services: Services, request: QueryAsked, ranking: Ranking) -> str:
    if not services.library.latest.pointers:
        return "the library holds no skill yet"
    if not ranking.hits and request.filters != QueryFilters():
        return "no skill that passes the filters shares anything with the task"
    return "nothing in the library is evidently about the task"


def check_query(request: QueryAsked, limit: int) -> None:
    """Raise UsageError for an empty or overlong task or an unknown stage."""
    if not request.task.strip():
        raise UsageError("the task is empty; say in words what is to be done")
    if len(request.task) > limit:
        raise UsageError(
            f"the task has {len(request.task)} characters, the limit is {limit} "
            "(limits.query_characters); send the part that says what is to be done"
        )
    unknown = set(request.without) - set(OPTIONAL_STAGES)
    if unknown:
        raise UsageError(
            f"no stage {', '.join(sorted(unknown))}; stages: {', '.join(OPTIONAL_STAGES)}"
        )


def rank_skills(
    services: Services,
    deadline: Deadline,
    request: QueryAsked,
    timings: StageTimings,
    policy_filter: PolicyFilter | None = None,
) -> Ranking:
    """The ranking before choosing: retrieved, reranked and diffused.

    Without a `screen` that of the settings' policy keeps skills back.
    """
    policy_filter = policy_filter or make_policy_filter(services)
    filters = Filters(**request.filters.model_dump())
    ranking = rank_candidates(
        services, request.task, filters, frozenset(request.without), timings.measure, policy_filter
    )
    deadline.check("retrieve")
    with timings.measure("rerank"):
        ranking = rerank(services, ranking, deadline, frozenset(request.without))
    settings = services.settings.diffusion
    if "diffusion" not in request.without:
        with timings.measure("diffuse"):
            ranking = diffuse(
                ranking,
                settings,
                lambda ids: services.graph.get_adjacency(ids, settings.fan_out),
                services.library.latest.pointers if filters == Filters() else {},
            )
    return filter_linked_hits(ranking, policy_filter)


def _select_passages(
    services: Services,
    deadline: Deadline,
    request: QueryAsked,
    policy_filter: PolicyFilter,
    final: FinalChoice,
    lost: list[str],
) -> list[SkillPassages]:
    """What was chosen, with the passages that the query wants; what is done without goes into
    `lost`."""
    settings = services.settings.passages
    ranking, choice, revisions = final.ranking, final.choice, final.revisions
    keys = [revision.key for revision in revisions.values()]
    vectors = {} if "paging" in request.without else services.index.get_section_vectors(keys)
    vector = None if "paging" in request.without else ranking.vector
    if vector is not None and not lost:
        late = _embed_missing_sections(services, deadline, revisions, vectors)
        if late:
            lost.append(
                f"{late} of {len(keys)} skills have no section vectors yet: "
                "their passages were chosen by words alone"
            )
    terms = ranking.understanding
    order = np.argsort(terms.ids)
    page_query = PassageQuery(vector, terms.ids[order], terms.weights[order])
    selected = []
    for chosen in choice.chosen:
        revision = revisions.get(chosen.skill_id)
        if revision is None:
            continue
        passages: Vector | None = None
        if settings.method == "mmr" and vector is not None:
            passages = encode_cached(services, passage_texts(revision.parsed), in_bulk=False)
        selected.append(
            select_skill_passages(
                chosen,
                revision,
                get_skill_location(policy_filter.sources, chosen.skill_id),
                page_query,
                vectors.get(revision.key),
                settings.gap,
                passages,
                settings.method == "full",
            )
        )
    return selected


def _choose(
    services: Services, policy_filter: PolicyFilter, top: int, ranking: Ranking
) -> SkillChoice:
    settings = services.settings
    return choose_skills(
        [(hit.key.skill_id, hit.score) for hit in ranking.hits],
        {hit.key.skill_id for hit in ranking.hits if hit.named_format},
        {hit.key.skill_id: hit.why for hit in ranking.hits[:EXPLAINED_CANDIDATES]},
        lambda ids: services.graph.get_adjacency(ids, settings.diffusion.fan_out),
        settings.choice,
        top,
        lambda ids: policy_filter(services.library.latest.get_keys(ids)),
    )


def _embed_missing_sections(
    services: Services,
    deadline: Deadline,
    revisions: dict[str, StoredRevision],
    vectors: dict[RevisionKey, Vector],
) -> int:
    """Embed sections that paging has not reached, while there is time; returns how many are left.

    `vectors` is filled in. A process that may not write keeps them for this answer only.
    """
    encoder = services.encoder.get()
    missing = [
        revision
        for revision in revisions.values()
        if revision.key not in vectors and supports_language(encoder, revision.parsed)
    ]
    patience = min(services.settings.passages.milliseconds / 1000, deadline.remaining() / 2)
    end = time.monotonic() + patience
    left = 0
    for revision in missing:
        if not revision.section_hashes:
            continue
        tokens = sum(passage.tokens for passage in revision.parsed.passages)
        if time.monotonic() + tokens / _TOKENS_A_SECOND > end:
            left += 1
            continue
        vectors |= embed_revisions(services, [revision], in_bulk=False)
    return left


def _select_links(services: Services, selected: Sequence[SkillPassages]) -> list[Link]:
    """Links among the chosen, the most telling first; two skills are only said to be alike where
    nothing else links them."""
    ids = {skill.chosen.skill_id for skill in selected}
    found = {
        (link.source, link.target, link.type): link
        for link in services.graph.get_links_among(sorted(ids))
    }
    kept: dict[frozenset[str], list[Link]] = {}
    for link in sorted(found.values(), key=lambda one: (_LINK_PRIORITY[one.type], one.source)):
        pair = kept.setdefault(frozenset((link.source, link.target)), [])
        if not pair or link.type not in (LinkType.SEMANTIC, LinkType.ALTERNATIVE):
            pair.append(link)
    return [link for pair in kept.values() for link in pair][:_LINKS]


def _left_out(choice: SkillChoice, everything: bool) -> list[LeftOutSkill]:
    shown = choice.left_out if everything else choice.left_out[:5]
    return [
        LeftOutSkill(skill_id=skill_id, name=skill_id.rpartition("/")[2], reason=reason)
        for skill_id, reason in shown
    ]
