"""Sources: their state, and a sync on request."""

from __future__ import annotations

from fastapi import APIRouter, Response

from workers.console.forms import SentForm, get_text
from workers.console.pages import PREFIX, redirect
from workers.console.view import CurrentView
from workers.http.routes.operations.health import describe_status
from workers.http.routes.sources import list_sources, refresh_source
from workers.http.tokens import TokenScope

router = APIRouter()


@router.get("/sources")
def show_sources(view: CurrentView) -> Response:
    """Show the sources and their state."""
    return view.render(
        "sources.html",
        section="Sources",
        sources=list_sources(view.backend, view.caller)["sources"],
        changeable=view.caller.sources,
        status=describe_status(view.backend, view.caller, recent=True),
    )


@router.post("/actions/sources/refresh")
def refresh(view: CurrentView, form: SentForm) -> Response:
    """Sync a source now."""
    source_id = get_text(form, "source_id")
    view.admit_change(TokenScope.WRITE, source_id)
    event = refresh_source(view.backend, view.caller, source_id, Response())
    return redirect(f"{PREFIX}/work/events/{event.id}")
