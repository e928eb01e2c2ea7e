"""Sources: their state, and a sync on request."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.console.forms import SentForm, get_text
from workers.console.pages import PREFIX, Pages, redirect
from workers.http.authentication import CurrentCaller, check_scope
from workers.http.idempotency import record_job
from workers.http.routes.operations.health import describe_status
from workers.http.routes.sources import list_source_rows, prepare_refresh
from workers.http.tokens import TokenScope


def source_views(backend: StoreBackend, pages: Pages) -> APIRouter:
    """Return the routes of sources."""
    router = APIRouter()

    @router.get("/sources")
    def show_sources(request: Request, caller: CurrentCaller) -> Response:
        return pages.render(
            request,
            "sources.html",
            section="Sources",
            sources=list_source_rows(backend, caller),
            changeable=caller.sources,
            status=describe_status(backend, caller, recent=True),
        )

    @router.post("/actions/sources/refresh")
    def refresh_source(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        source_id = get_text(form, "source_id")
        note_object(request, source_id)
        check_scope(caller, TokenScope.WRITE)
        event = record_job(backend, caller, prepare_refresh(backend, caller, source_id), None)
        return redirect(f"{PREFIX}/work/events/{event.id}")

    return router
