"""Log-in with a token, log-out, and the theme."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from config.errors import UsageError
from workers.console.forms import SentForm, get_next_url, get_text
from workers.console.pages import LOGIN_PATH, PREFIX, THEMES, check_local_url, redirect
from workers.console.sessions import ENDED_SECONDS
from workers.console.view import CurrentView
from workers.http.access import AccessRules
from workers.http.dependencies import from_state

_MAX_TOKEN_CHARACTERS = 16_384


router = APIRouter()


@router.get("/")
def show_first_page() -> Response:
    """Redirect to the page that is shown first."""
    return redirect(f"{PREFIX}/ask")


@router.get("/login")
def show_login(view: CurrentView, next: str = PREFIX) -> Response:
    """Show the page to log in."""
    return view.render("login.html", next=check_local_url(next), problem="")


@router.post("/login")
async def log_in(
    view: CurrentView, access: Annotated[AccessRules, from_state("access")], form: SentForm
) -> Response:
    """Start a session with a token; show a form with an error again."""
    after = get_next_url(form)
    try:
        secret = get_text(form, "token", _MAX_TOKEN_CHARACTERS).strip()
        if not secret:
            raise UsageError("the token is empty; paste it into the field")
        session = view.pages.sessions.begin(secret)
        caller = await access.find_caller({"authorization": f"Bearer {secret}"})
        if caller is None:
            raise UsageError("this token is unknown or expired")
    except (UsageError, HTTPException) as error:
        problem = error.detail if isinstance(error, HTTPException) else str(error)
        status = getattr(error, "status_code", 403)
        return view.render("login.html", status, next=after, problem=problem)
    response = redirect(after)
    view.pages.set_session(view.request, response, session)
    return response


@router.post("/logout")
def log_out(view: CurrentView, form: SentForm) -> Response:
    """End the session."""
    del form
    session = view.pages.get_session(view.request)
    if session is not None:
        view.backend.journal.end_session(session.id, ENDED_SECONDS)
    response = redirect(LOGIN_PATH)
    view.pages.set_session(view.request, response, view.pages.sessions.begin())
    return response


@router.post("/theme")
def set_theme(view: CurrentView, form: SentForm) -> Response:
    """Set the theme."""
    theme = get_text(form, "theme")
    response = redirect(get_next_url(form))
    if theme in THEMES:
        view.pages.set_theme(view.request, response, theme)
    return response
