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
from config.settings import STAGES
from graph.protocol import Link, LinkType, SkillGraph
from search.protocol import Filters, SearchIndex, StoredRevision, Vector
from skills.bundle.model import Bundle, SkillLeftOut, Withheld, withheld_summary
from skills.events import QueryAsked, QueryFilters
from skills.passages import PageQuery, passage_texts
from skills.record import RevisionKey
from tasks.embedding import encode_cached, is_known
from tasks.ingest.embed_sections import page_revisions
from tasks.policies import Deadline
from tasks.query.assemble import PagedSkill, assemble, page_skill
from tasks.query.choose import Choice, choose_skills
from tasks.query.degradation import Losses, TolerantGraph, TolerantIndex
from tasks.query.diffuse import diffuse
from tasks.query.explain import explanation
from tasks.query.fallback_revision import read_or_describe
from tasks.query.policy_filter import Screen
from tasks.query.rerank import rerank
from tasks.query.retrieve import REASONED, Ranking, rank
from tasks.query.withheld import (
    Settled,
    is_evident,
    screen_of,
    screened_again,
    settle,
    withheld_from,
)
from tasks.services import Services
from tasks.sources.readers import file_of

_LINKS = 20
_TOKENS_A_SECOND = 6000.0
"""What one thread of a common processor encodes: it only decides whether to begin."""
_TELLING = {
    LinkType.CONFLICT: 0,
    LinkType.DEPENDENCY: 1,
    LinkType.WORKFLOW: 2,
    LinkType.ALTERNATIVE: 3,
    LinkType.SEMANTIC: 4,
}


def _go_on(stage: str) -> None:
    """Begin a stage of a query that nobody watches."""
    del stage


@dataclass(slots=True)
class Timings:
    """Milliseconds of each stage, in the order they ran.

    begins: called with each stage before it; what it raises ends the query.
    """

    begins: Callable[[str], None] = _go_on
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Time a stage."""
        self.begins(stage)
        started = time.perf_counter()
        yield
        self.stages[stage] = round((time.perf_counter() - started) * 1000, 2)


def answer(
    services: Services,
    deadline: Deadline,
    query_id: str,
    asked: QueryAsked,
    timings: Timings | None = None,
) -> Bundle:
    """The bundle for a task. Raises UsageError for a query that cannot be answered.

    Where stores are servers, one that is away is done without, and the bundle says so.
    """
    settings = services.settings
    check(asked, settings.limits.query_characters)
    losses = Losses()
    services = _tolerant(services, losses)
    timings = timings or Timings()
    screen = screen_of(services)
    ranking = ranked(services, deadline, asked, timings, screen)
    shell = Bundle(
        query_id=query_id,
        status="NO_SKILL_HIT",
        reason=_why_nothing(services, asked, ranking),
        task=asked.task,
        budget=asked.budget or settings.choice.budget,
        degraded=tuple(ranking.degraded),
        timings_ms=timings.stages,
    )
    found = _Found(ranking)
    if ranking.hits and (_goes_without_floor(asked) or is_evident(ranking, settings.choice)):
        found = _find(services, deadline, asked, screen, ranking, timings)
    if found.paged:
        with timings.of("bundle"):
            bundle = _hit(services, asked, shell, found, losses)
        services.note_use([skill.skill_id for skill in bundle.skills])
    else:
        bundle = _no_hit(services, asked, shell, found, losses)
    bundle = bundle.model_copy(update={"timings_ms": timings.stages})
    if not asked.explain:
        return bundle
    told = explanation(found.ranking, found.choice, bundle, settings.choice)
    return bundle.model_copy(update={"explain": told})


@dataclass(frozen=True, slots=True)
class _Found:
    """What was chosen of a ranking, with its passages: all that was chosen may be gone by then.

    lost: what was done without on the way.
    """

    ranking: Ranking
    choice: Choice = field(default_factory=Choice)
    paged: Sequence[PagedSkill] = ()
    lost: Sequence[str] = ()


def _find(
    services: Services,
    deadline: Deadline,
    asked: QueryAsked,
    screen: Screen,
    ranking: Ranking,
    timings: Timings,
) -> _Found:
    """Choose, read what was chosen, and page it."""
    choose = partial(_choose, services, screen, _top(services, asked))
    with timings.of("choose"):
        choice = choose(ranking)
    with timings.of("page"):
        lost: list[str] = []
        read = partial(read_or_describe, services, screen, lost)
        settled = settle(ranking, choice, screen, choose, read)
        paged = _page(services, deadline, asked, screen, settled, lost)
    return _Found(settled.ranking, settled.choice, paged, lost)


def _hit(
    services: Services, asked: QueryAsked, shell: Bundle, found: _Found, losses: Losses
) -> Bundle:
    """The bundle with what was found, within its budget."""
    links, left_out = _links(services, found.paged), _left_out(found.choice, asked.explain)
    filled = {
        "status": "SKILL_HIT",
        "reason": "",
        "degraded": (*shell.degraded, *dict.fromkeys(found.lost), *losses.told),
        "withheld": _withheld(services, asked, found),
    }
    return assemble(shell.model_copy(update=filled), found.paged, links, left_out)


def _no_hit(
    services: Services, asked: QueryAsked, shell: Bundle, found: _Found, losses: Losses
) -> Bundle:
    """The bundle without a skill, and why it has none."""
    withheld = _withheld(services, asked, found)
    kept = f"nothing about the task may be sent: {withheld_summary(withheld)}"
    why = {"reason": kept} if withheld.count else {}
    degraded = (*shell.degraded, *losses.told)
    return shell.model_copy(update={"degraded": degraded, "withheld": withheld, **why})


def _withheld(services: Services, asked: QueryAsked, found: _Found) -> Withheld:
    floor = not _goes_without_floor(asked)
    top = _top(services, asked)
    return withheld_from(found.ranking, found.choice, services.settings, top, floor=floor)


def _goes_without_floor(asked: QueryAsked) -> bool:
    return "floor" in asked.without


def _top(services: Services, asked: QueryAsked) -> int:
    return asked.top or services.settings.choice.top


def _tolerant(services: Services, losses: Losses) -> Services:
    """These services for one query, which notes what it had to do without."""
    if services.outages is None:
        return services
    index = TolerantIndex(services.index, services.outages.index, losses)
    graph = TolerantGraph(services.graph, services.outages.graph, losses)
    # They offer what a query calls, and nothing that changes the library.
    return replace(services, index=cast(SearchIndex, index), graph=cast(SkillGraph, graph))


def _why_nothing(services: Services, asked: QueryAsked, ranking: Ranking) -> str:
    if not services.library.latest.pointers:
        return "the library holds no skill yet"
    if not ranking.hits and asked.filters != QueryFilters():
        return "no skill that passes the filters shares anything with the task"
    return "nothing in the library is evidently about the task"


def check(asked: QueryAsked, limit: int) -> None:
    """Raise UsageError for an empty or overlong task or an unknown stage."""
    if not asked.task.strip():
        raise UsageError("the task is empty; say in words what is to be done")
    if len(asked.task) > limit:
        raise UsageError(
            f"the task has {len(asked.task)} characters, the limit is {limit} "
            "(limits.query_characters); send the part that says what is to be done"
        )
    unknown = set(asked.without) - set(STAGES)
    if unknown:
        raise UsageError(f"no stage {', '.join(sorted(unknown))}; stages: {', '.join(STAGES)}")


def ranked(
    services: Services,
    deadline: Deadline,
    asked: QueryAsked,
    timings: Timings,
    screen: Screen | None = None,
) -> Ranking:
    """The ranking before choosing: retrieved, reranked and diffused.

    Without a `screen` that of the settings' policy keeps skills back.
    """
    screen = screen or screen_of(services)
    filters = Filters(**asked.filters.model_dump())
    ranking = rank(services, asked.task, filters, frozenset(asked.without), timings.of, screen)
    deadline.check("retrieve")
    with timings.of("rerank"):
        ranking = rerank(services, ranking, deadline, frozenset(asked.without))
    settings = services.settings.diffusion
    if "diffusion" not in asked.without:
        with timings.of("diffuse"):
            ranking = diffuse(
                ranking,
                settings,
                lambda ids: services.graph.rows(ids, settings.fan_out),
                services.library.latest.pointers if filters == Filters() else {},
            )
    return screened_again(ranking, screen)


def _page(
    services: Services,
    deadline: Deadline,
    asked: QueryAsked,
    screen: Screen,
    settled: Settled,
    lost: list[str],
) -> list[PagedSkill]:
    """What was chosen, with the passages that the query wants; what is done without goes into
    `lost`."""
    settings = services.settings.paging
    ranking, choice, revisions = settled.ranking, settled.choice, settled.revisions
    keys = [revision.key for revision in revisions.values()]
    vectors = {} if "paging" in asked.without else services.index.section_vectors(keys)
    vector = None if "paging" in asked.without else ranking.vector
    if vector is not None and not lost:
        late = _embed_late(services, deadline, revisions, vectors)
        if late:
            lost.append(
                f"{late} of {len(keys)} skills have no section vectors yet: "
                "their passages were chosen by words alone"
            )
    terms = ranking.understanding
    order = np.argsort(terms.ids)
    page_query = PageQuery(vector, terms.ids[order], terms.weights[order])
    paged = []
    for chosen in choice.chosen:
        revision = revisions.get(chosen.skill_id)
        if revision is None:
            continue
        passages: Vector | None = None
        if settings.method == "mmr" and vector is not None:
            passages = encode_cached(services, passage_texts(revision.parsed), in_bulk=False)
        paged.append(
            page_skill(
                chosen,
                revision,
                file_of(screen.sources, chosen.skill_id),
                page_query,
                vectors.get(revision.key),
                settings.gap,
                passages,
                settings.method == "full",
            )
        )
    return paged


def _choose(services: Services, screen: Screen, top: int, ranking: Ranking) -> Choice:
    settings = services.settings
    return choose_skills(
        [(hit.key.skill_id, hit.score) for hit in ranking.hits],
        {hit.key.skill_id for hit in ranking.hits if hit.slot},
        {hit.key.skill_id: hit.why for hit in ranking.hits[:REASONED]},
        lambda ids: services.graph.rows(ids, settings.diffusion.fan_out),
        settings.choice,
        top,
        lambda ids: screen(services.library.latest.keys(ids)),
    )


def _embed_late(
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
        if revision.key not in vectors and is_known(encoder, revision.parsed)
    ]
    patience = min(services.settings.paging.milliseconds / 1000, deadline.remaining() / 2)
    end = time.monotonic() + patience
    left = 0
    for revision in missing:
        if not revision.section_hashes:
            continue
        tokens = sum(passage.tokens for passage in revision.parsed.passages)
        if time.monotonic() + tokens / _TOKENS_A_SECOND > end:
            left += 1
            continue
        vectors |= page_revisions(services, [revision], in_bulk=False)
    return left


def _links(services: Services, paged: Sequence[PagedSkill]) -> list[Link]:
    """Links among the chosen, the most telling first; two skills are only said to be alike where
    nothing else links them."""
    ids = {skill.chosen.skill_id for skill in paged}
    found = {
        (link.source, link.target, link.type): link
        for link in services.graph.links_among(sorted(ids))
    }
    kept: dict[frozenset[str], list[Link]] = {}
    for link in sorted(found.values(), key=lambda one: (_TELLING[one.type], one.source)):
        pair = kept.setdefault(frozenset((link.source, link.target)), [])
        if not pair or link.type not in (LinkType.SEMANTIC, LinkType.ALTERNATIVE):
            pair.append(link)
    return [link for pair in kept.values() for link in pair][:_LINKS]


def _left_out(choice: Choice, everything: bool) -> list[SkillLeftOut]:
    shown = choice.left_out if everything else choice.left_out[:5]
    return [
        SkillLeftOut(skill_id=skill_id, name=skill_id.rpartition("/")[2], reason=reason)
        for skill_id, reason in shown
    ]
