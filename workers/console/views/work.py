"""Work: waiting and running work, recent events, and tasks that failed permanently."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from markupsafe import Markup

from config.errors import UsageError
from graph.records import SkillState
from skills.bundle.escaping import dump_terminal_json
from tasks.journal.protocol import Job
from tasks.policies import MAINTAIN_QUEUE, POLICIES, QUERY_QUEUE, resolve_task_name
from workers.backend.store_backend import StoreBackend
from workers.console.charts import LineChart, plot_over_time
from workers.console.forms import SentForm, get_next_url, get_text
from workers.console.pages import PREFIX, redirect
from workers.console.shared_fragments import SharedFragments
from workers.console.view import CurrentView, PageParameters, View
from workers.http.authentication import Caller
from workers.http.dependencies import from_state
from workers.http.jobs import get_visible_job
from workers.http.routes.library.search import LibraryQuery, search_library
from workers.http.routes.operations.dead_letters import discard_dead_letter
from workers.http.routes.operations.events import (
    MAX_LISTED,
    ListedEvent,
    TaskRunData,
    describe_event,
    list_recent_events,
    list_task_runs,
)
from workers.http.routes.operations.health import describe_status
from workers.http.routes.operations.work import WorkQuery, WorkReport
from workers.http.routes.operations.work import show_work as read_work
from workers.http.tokens import TokenScope
from workers.library import dead_letters
from workers.quantities import format_duration

PATH = f"{PREFIX}/work"
RANGES = (1, 6, 24)

_MAX_LETTERS = 1_000
_UNCOUNTED = (QUERY_QUEUE, MAINTAIN_QUEUE)


class WorkPageQuery(PageParameters):
    """Parameters of the page. hours: range of the curves. letters: maximum of dead letters."""

    path = PATH

    hours: int = 6
    letters: Annotated[int, Query(ge=1, le=_MAX_LETTERS)] = 20


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A run of a task on a time line.

    begun, took: seconds, the first since the event was accepted. left, width: of its bar, in per
    cent. letter_id: of its dead letter, or "".
    """

    run: TaskRunData
    begun: float
    took: float
    left: float
    width: float
    letter_id: str


router = APIRouter()


@router.get("/work")
def show_work(
    view: CurrentView,
    fragments: Annotated[SharedFragments, from_state("fragments")],
    query: Annotated[WorkPageQuery, Query()],
) -> Response:
    """Show waiting and running work, or only the part that an open page reloads."""
    if query.hours not in RANGES:
        raise UsageError(f"hours: choose one of {', '.join(map(str, RANGES))}")
    backend, is_admin = view.backend, view.caller.is_admin
    is_polled = "hx-request" in view.request.headers
    now = fragments.get(
        view.caller,
        ("work", query.hours),
        lambda: _render_now(view, query.hours),
        fresh=not is_polled,
    )
    if is_polled:
        return view.pages.respond_part(view.request, now)
    letters = backend.journal.list_dead_letters(query.letters) if is_admin else []
    total = backend.journal.count_dead_letters() if is_admin else 0
    more = min(5 * query.letters, _MAX_LETTERS)
    return view.render(
        "work/work.html",
        section="Work",
        now=now,
        letters=[dead_letters.dead_letter_data(one) for one in letters],
        known_events=backend.journal.get_job_states(list({one.trace_id for one in letters})),
        total_letters=total,
        more_url=query.url(letters=more) if total > query.letters < more else "",
    )


@router.get("/work/events/{event_id}")
def show_event(view: CurrentView, event_id: str) -> Response:
    """Show an event and its tasks."""
    job = get_visible_job(view.backend, view.caller, event_id, "event", "outcome")
    event = describe_event(job)
    runs = list_task_runs(view.backend, view.caller, event.trace_id)
    letters = _list_letters(view.backend, view.caller, event.trace_id)
    return view.render(
        "work/event.html",
        section="Work",
        event=event,
        unembedded=_list_unembedded(view, event),
        timeline=build_timeline(job, runs, letters),
        letters=letters,
        data=dump_terminal_json(job.event.data),
        outcome=None if job.outcome is None else dump_terminal_json(job.outcome),
    )


@router.post("/actions/letters/retry")
def retry(view: CurrentView, form: SentForm) -> Response:
    """Send the task of a dead letter again."""
    letter_id = get_text(form, "letter_id")
    view.admit_change(TokenScope.ADMIN, letter_id)
    dead_letters.retry_dead_letter(view.backend, letter_id)
    return redirect(get_next_url(form))


@router.post("/actions/letters/discard")
def discard(view: CurrentView, form: SentForm) -> Response:
    """Delete a dead letter."""
    letter_id = get_text(form, "letter_id")
    view.admit_change(TokenScope.ADMIN, letter_id)
    discard_dead_letter(view.backend, letter_id)
    return redirect(get_next_url(form))


def _render_now(view: View, hours: int) -> Markup:
    """Render the part of the page that an open page reloads."""
    backend, caller = view.backend, view.caller
    # Work is counted over all sources.
    sees_all = backend.find_visible_sources(caller.reader) is None
    work = read_work(backend, caller, WorkQuery(hours=hours)) if sees_all else None
    status = describe_status(backend, caller, recent=True)
    return view.pages.render_part(
        "work/now.html",
        problem=status["problem"],
        tiles=None if work is None else _list_tiles(status),
        is_catalog_away=status["skills"] is None,
        work=work,
        charts=None if work is None else _plot(work),
        ended={} if work is None else _count_by_queue(work),
        hours=hours,
        ranges=RANGES,
        address=WorkPageQuery(hours=hours).url(),
        events=list_recent_events(backend, caller),
        most_events=MAX_LISTED,
        is_admin=caller.is_admin,
        now=time.time(),
    )


def _list_tiles(status: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return titles, values and links of all work, without those whose server does not answer."""
    events, skills = status["open_events"], status["skills"]
    tiles: list[tuple[str, str, str]] = []
    if events is not None:
        oldest = format_duration(status["oldest_event_seconds"]) if events else "–"
        tiles += [("Events open", f"{events:,}", ""), ("Age of the oldest event", oldest, "")]
    if skills is not None:
        tiles += [
            ("Skills to ingest", f"{skills['waiting']:,}", ""),
            ("Skills to link", f"{status['unlinked']:,}", ""),
            ("Skills without vectors", f"{skills['published'] - status['with_vectors']:,}", ""),
            ("Skills without section vectors", f"{skills['published'] - status['embedded']:,}", ""),
        ]
    if events is not None:
        tiles += [
            ("Queries open", f"{status['open_queries']:,}", ""),
            ("Dead letters", f"{status['dead_letters']:,}", "#letters"),
        ]
    return tiles


def _count_by_queue(work: WorkReport) -> dict[str, int]:
    """Return the number of tasks that ended in the last hour, by queue with counted tasks."""
    ended = {one.queue: 0 for one in POLICIES.values() if one.queue not in _UNCOUNTED}
    for one in work.tasks:
        policy = POLICIES.get(resolve_task_name(one.task))
        if policy is not None:  # else of a later version
            ended[policy.queue] += one.ended
    return ended


def _plot(work: WorkReport) -> dict[str, LineChart]:
    points = work.points
    times = [float(point.at) for point in points]
    is_any = any(point.tasks for point in points)
    rates: dict[str, list[float | None]] = {
        "events": [point.events if is_any else None for point in points],
        "tasks": [point.tasks if is_any else None for point in points],
    }
    searchable: dict[str, Sequence[float | None]] = {
        "p50": [point.p50 for point in points],
        "p95": [point.p95 for point in points],
    }
    return {
        "searchable": plot_over_time(
            "Time from event to searchable", times, searchable, unit="seconds"
        ),
        "rates": plot_over_time("Events and tasks", times, rates, unit="ended per minute"),
    }


def _list_letters(backend: StoreBackend, caller: Caller, trace_id: str) -> list[dict[str, Any]]:
    """Return the dead letters of a trace, for admins; searches only the newest letters."""
    if not caller.is_admin:
        return []
    letters = backend.journal.list_dead_letters(_MAX_LETTERS)
    return [dead_letters.dead_letter_data(one) for one in letters if one.trace_id == trace_id]


def _list_unembedded(view: View, event: ListedEvent) -> dict[str, Any]:
    """Count the skills of a completed event whose sections have no vectors now.

    An event is about a skill or a source. For a skill, `has_vectors` is whether the
    skill itself has a vector.
    """
    source_id, has_skill, _ = event.subject.partition(":")
    if event.state != "done" or not source_id:
        return {"total": 0}
    if has_skill:
        entries = view.backend.graph_for(view.caller.reader).get_entries([event.subject])
        waiting = [one for one in entries if one.state is SkillState.PUBLISHED and not one.embedded]
        return {"total": len(waiting), "has_vectors": all(one.has_vectors for one in waiting)}
    query = LibraryQuery(source=source_id, state=SkillState.PUBLISHED, embedded=False, limit=1)
    found = search_library(view.backend, view.services.library, view.caller, query)
    # The total may be some seconds old, the list of skills is current.
    return {"total": max(found["total"], 1) if found["skills"] else 0, "source": source_id}


def build_timeline(
    job: Job, runs: Sequence[TaskRunData], letters: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the time line of an event, from its acceptance to the end of its last task: the rows,
    the length in seconds, and whether a row has an error. letters: dead letters of its tasks."""
    end = max((run.ended for run in runs), default=job.accepted)
    length = max(end - job.accepted, 0.001)
    rows = []
    for run in sorted(runs, key=lambda one: (one.started, one.ended)):
        begun, took = max(0.0, run.started - job.accepted), max(0.0, run.ended - run.started)
        left = min(100 * begun / length, 99.5)
        width = min(max(100 * took / length, 0.5), 100 - left)
        letter_id = _find_letter(run, letters)
        rows.append(TimelineRow(run, begun, took, round(left, 2), round(width, 2), letter_id))
    is_any_error = any(run.error for run in runs)
    return {"rows": rows, "seconds": length, "is_any_error": is_any_error}


def _find_letter(run: TaskRunData, letters: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of the dead letter of a failed run, "" if there is none or it is deleted."""
    left = (
        one
        for one in letters
        if one["task"] == run.task and one["failed_at"] >= run.ended and run.reason in one["reason"]
    )
    first = min(left, key=lambda one: float(one["failed_at"]), default=None)
    return str(first["id"]) if first is not None and run.outcome == "failed" else ""
