"""Usage: queries, sent skills and outcomes, and which skills are of no use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from config.errors import UsageError
from tasks.outcomes.protocol import AnswerPlace
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller, CurrentCaller
from workers.http.cursors import WRONG_CURSOR, PageQuery, cut_page
from workers.http.dependencies import from_state
from workers.http.limits.thread_slots import ThreadSlots
from workers.http.models import RequestModel, ResponseModel
from workers.library.usage.answered import NEWEST, QueryOutcome, describe_answered
from workers.library.usage.findings import describe_unused
from workers.library.usage.published_skills import PublishedSkills
from workers.library.usage.reader import UsageReader
from workers.library.usage.report import MAX_DAYS, UsageFilter

Rows = list[dict[str, Any]]

_MAX_ID = 4_300
_WAIT_SECONDS = 10.0
_MAX_WAITING = 8


class UsagePage(PageQuery):
    """Range and page. Other parameters are rejected."""

    days: int = Field(30, ge=1, le=MAX_DAYS, description="the last days, today (UTC) included")
    limit: int = Field(100, ge=1, le=1_000)


class UsageQuery(UsagePage):
    """Range, filters and page. Other parameters are rejected."""

    source: str | None = Field(
        None, min_length=1, max_length=200, description="only skills of this source"
    )
    skill: str | None = Field(None, min_length=1, max_length=_MAX_ID, description="only this skill")
    owner: str | None = Field(
        None,
        max_length=100,
        description="only queries and outcomes of this token; empty: the user of the machine; only "
        "admins may name another than themselves",
    )

    def to_filter(self, caller: Caller, visible: frozenset[str] | None) -> UsageFilter:
        """Return the filter for rows that the caller may see; raises HTTPException (403) for
        another owner than the caller."""
        if self.owner is not None and not caller.can_see(self.owner):
            raise HTTPException(403, "the usage of another token needs a token of scope admin")
        return UsageFilter(self.source, self.skill, self.owner, visible)


class AnsweredQueriesQuery(UsagePage):
    """Range, outcome and page of answered queries. Other parameters are rejected."""

    outcome: QueryOutcome | None = Field(
        None,
        description="only queries with this result: `hit`, `no_hit`, a reported outcome of one of "
        "their skills, `missing`, or `unreported`",
    )


class UsageReport(ResponseModel):
    """Usage in total and by day, by source, by owner, and a page of skills by what was sent.

    first, last: the range, UTC. behind: days that are shown as of the last roll-up. owners: for
    admins all, for others the caller. total, days, owners: counters of queries only without a
    filter of skills, and if the caller may see all sources. skill_count: number of skills on all
    pages. next: path of the next page.
    """

    first: str
    last: str
    behind: list[str]
    total: dict[str, Any]
    days: Rows
    sources: Rows
    owners: Rows
    skills: Rows
    skill_count: int
    next: str | None


class FoundSkills(ResponseModel):
    """A page of skills. total: number of them on all pages. next: path of the next page."""

    skills: Rows
    total: int
    next: str | None


class UnansweredGroups(ResponseModel):
    """A page of groups of unanswered queries, largest first.

    total: number of unanswered queries. grouped: number of compared queries, the newest of a sample
    whose texts are stored. group_count: number of groups on all pages.
    """

    total: int
    grouped: int
    groups: Rows
    group_count: int
    next: str | None


class AnsweredQueries(ResponseModel):
    """A page of answered queries, newest first; queries of the page with
    similar tasks are one group.

    answers of a group: the task, the chosen skills in the order of the bundle, the probability, and
    the reported outcomes; kept: whether `GET /v1/queries/{query_id}` still has the answer. next:
    path of the next page; a page may have fewer than `limit` queries and not be the last.
    """

    groups: Rows
    next: str | None


class OutcomesQuery(RequestModel):
    """A skill, and the range. Other parameters are rejected."""

    skill: str = Field(min_length=1, max_length=_MAX_ID, description="the reported skill")
    days: int = Field(30, ge=1, le=MAX_DAYS, description="the last days, today (UTC) included")
    limit: int = Field(100, ge=1, le=1_000)


class ReportedOutcomes(ResponseModel):
    """Reported outcomes of a skill, newest first: of the caller's queries,
    for admins of all queries.

    by: `agent`, `verifier` or `person`. truncated: whether there may be more.
    """

    outcomes: Rows
    truncated: bool


class UsageReaders:
    """Readers of usage, of which only one is open at a time: a report over years of a large library
    takes seconds of one core, which several callers together should not take from queries."""

    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend
        self._slots = ThreadSlots(1, _MAX_WAITING)
        self.published = PublishedSkills(lambda: backend.graph)

    @contextmanager
    def open(self, caller: Caller) -> Iterator[UsageReader]:
        """Yield a reader; raises TransientError if too many callers wait for one."""
        backend = self.backend
        with self._slots.hold(_WAIT_SECONDS, "other reports are being computed; try again later"):
            skills = backend.skills.for_reader(caller.reader)
            yield UsageReader(backend.settings, backend.outcome_store(), skills)


CurrentUsage = Annotated[UsageReaders, from_state("usage")]

router = APIRouter(tags=["usage"])


@router.get("/v1/usage")
def get_usage(
    usage: CurrentUsage, caller: CurrentCaller, query: Annotated[UsageQuery, Query()]
) -> UsageReport:
    """Show how often skills were chosen, sent, used, and helped, over time."""
    selection = query.to_filter(caller, usage.backend.find_visible_sources(caller.reader))
    with usage.open(caller) as reader:
        data = reader.summarise(query.days, selection)
    page, following = cut_page("/v1/usage", data["skills"], query)
    owners = [one for one in data["owners"] if caller.can_see(one["owner"])]
    count = len(data["skills"])
    return UsageReport(
        **{**data, "skills": page, "owners": owners}, skill_count=count, next=following
    )


@router.get("/v1/usage/unused")
def list_unused(
    usage: CurrentUsage, caller: CurrentCaller, query: Annotated[UsageQuery, Query()]
) -> FoundSkills:
    """List published skills that were not chosen for any query, by id."""
    selection = query.to_filter(caller, usage.backend.find_visible_sources(caller.reader))
    policy = usage.backend.skills.get_policy()
    with usage.open(caller) as reader:
        found = reader.select_unused(query.days, selection, usage.published.read(policy))
    page, following = cut_page("/v1/usage/unused", found, query)
    rows = [describe_unused(one) for one in usage.published.check(page, policy)]
    return FoundSkills(skills=rows, total=len(found), next=following)


@router.get("/v1/usage/copies")
def list_copies(
    usage: CurrentUsage, caller: CurrentCaller, query: Annotated[UsageQuery, Query()]
) -> FoundSkills:
    """List skills that were never chosen because a skill that does the same was preferred."""
    selection = query.to_filter(caller, usage.backend.find_visible_sources(caller.reader))
    with usage.open(caller) as reader:
        found = reader.list_copies(query.days, selection)
    page, following = cut_page("/v1/usage/copies", found, query)
    return FoundSkills(skills=page, total=len(found), next=following)


@router.get("/v1/usage/outcomes")
def list_outcomes(
    usage: CurrentUsage, caller: CurrentCaller, query: Annotated[OutcomesQuery, Query()]
) -> ReportedOutcomes:
    """List reported outcomes of a skill, with the tasks: of the caller's queries, for
    admins of all queries."""
    visible = usage.backend.find_visible_sources(caller.reader)
    if not UsageFilter(visible=visible).sees(query.skill):
        return ReportedOutcomes(outcomes=[], truncated=False)
    with usage.open(caller) as reader:
        rows, more = reader.list_outcomes(
            query.days, query.skill, query.limit, caller.can_see, visible
        )
    return ReportedOutcomes(outcomes=rows, truncated=more)


@router.get("/v1/usage/queries")
def list_answered(
    usage: CurrentUsage, caller: CurrentCaller, query: Annotated[AnsweredQueriesQuery, Query()]
) -> AnsweredQueries:
    """List answered queries, newest first, similar tasks together: the caller's
    queries, for admins all."""
    path = "/v1/usage/queries"
    place = _parse_answer_place(query.decode_cursor(path))
    visible = usage.backend.find_visible_sources(caller.reader)
    with usage.open(caller) as reader:
        groups, page = reader.list_answered(
            query.days, query.outcome, caller.can_see, visible, place, query.limit
        )
    states = usage.backend.journal.get_job_states([one.query_id for one in page.answers])
    following = None
    if page.next is not None:
        following = query.make_next_path(path, f"{page.next.answered!r} {page.next.query_id}")
    return AnsweredQueries(groups=describe_answered(groups, page, states), next=following)


@router.get("/v1/usage/unanswered")
def list_unanswered(
    usage: CurrentUsage, caller: CurrentCaller, query: Annotated[UsagePage, Query()]
) -> UnansweredGroups:
    """List unanswered queries, grouped by similarity of their tasks: the caller's
    queries, for admins all."""
    with usage.open(caller) as reader:
        data = reader.group_unanswered(query.days, None if caller.is_admin else caller.name)
    page, following = cut_page("/v1/usage/unanswered", data["groups"], query)
    count = len(data["groups"])
    return UnansweredGroups(**{**data, "groups": page}, group_count=count, next=following)


def _parse_answer_place(text: str) -> AnswerPlace:
    """Return the place of a cursor; without a cursor, the place before all queries."""
    if not text:
        return NEWEST
    answered, _, query_id = text.partition(" ")
    with suppress(ValueError):
        if math.isfinite(seconds := float(answered)):
            return AnswerPlace(seconds, query_id)
    raise UsageError(WRONG_CURSOR)
