"""Work: what waits, events as they come, and tasks that failed for good."""

from __future__ import annotations

import json
import time

from fastapi import APIRouter, Request, Response

from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.console.forms import SentForm, get_text
from workers.console.pages import PREFIX, Pages, redirect
from workers.http.authentication import CurrentCaller, check_scope
from workers.http.jobs import get_visible_job
from workers.http.routes.dead_letters import discard_letter
from workers.http.routes.events import describe_event, list_recent_events
from workers.http.routes.health import describe_status
from workers.http.tokens import TokenScope
from workers.library import dead_letters

PATH = f"{PREFIX}/work"

_MAX_LETTERS = 100


def work_views(backend: StoreBackend, pages: Pages) -> APIRouter:
    """Return the routes of events and dead letters."""
    router = APIRouter()

    @router.get("/work")
    def show_work(request: Request, caller: CurrentCaller) -> Response:
        is_admin = caller.scope >= TokenScope.ADMIN
        letters = backend.journal.list_dead_letters(_MAX_LETTERS) if is_admin else []
        return pages.render(
            request,
            "work/work.html",
            section="Work",
            status=describe_status(backend, caller),
            events=list_recent_events(backend, caller),
            letters=[dead_letters.dead_letter_data(one) for one in letters],
            now=time.time(),
        )

    @router.get("/work/events/{event_id}")
    def show_event(event_id: str, request: Request, caller: CurrentCaller) -> Response:
        job = get_visible_job(backend, caller, event_id, "event", "outcome")
        return pages.render(
            request,
            "work/event.html",
            section="Work",
            event=describe_event(job),
            data=json.dumps(job.event.data, ensure_ascii=False, indent=2),
            outcome=None
            if job.outcome is None
            else json.dumps(job.outcome, ensure_ascii=False, indent=2),
        )

    @router.post("/actions/letters/retry")
    def retry_letter(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        letter_id = get_text(form, "letter_id")
        note_object(request, letter_id)
        check_scope(caller, TokenScope.ADMIN)
        dead_letters.retry_dead_letter(backend, letter_id)
        return redirect(f"{PATH}#letters")

    @router.post("/actions/letters/discard")
    def discard(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        letter_id = get_text(form, "letter_id")
        note_object(request, letter_id)
        check_scope(caller, TokenScope.ADMIN)
        discard_letter(backend, letter_id)
        return redirect(f"{PATH}#letters")

    return router
