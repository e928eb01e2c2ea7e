"""Log-in with a token, log-out, and the theme."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from config.errors import UsageError
from tasks.journal.protocol import EndedSessions
from workers.console.forms import SentForm, get_next_url, get_text
from workers.console.pages import LOGIN_PATH, PREFIX, THEMES, Pages, check_local_url, redirect
from workers.console.sessions import ENDED_SECONDS
from workers.http.access import AccessRules

_MAX_TOKEN_CHARACTERS = 16_384


def login_views(access: AccessRules, pages: Pages, ended_sessions: EndedSessions) -> APIRouter:
    """Return the routes of sessions."""
    router = APIRouter()

    @router.get("/")
    def show_first_page() -> Response:
        return redirect(f"{PREFIX}/ask")

    @router.get("/login")
    def show_login(request: Request, next: str = PREFIX) -> Response:
        return pages.render(request, "login.html", next=check_local_url(next), problem="")

    @router.post("/login")
    async def log_in(request: Request, form: SentForm) -> Response:
        after = get_next_url(form)
        try:
            secret = get_text(form, "token", _MAX_TOKEN_CHARACTERS).strip()
            if not secret:
                raise UsageError("paste the token into the field")
            session = pages.sessions.begin(secret)
            caller = await access.find_caller({"authorization": f"Bearer {secret}"})
            if caller is None:
                raise UsageError("this token is unknown or expired")
        except (UsageError, HTTPException) as error:
            problem = error.detail if isinstance(error, HTTPException) else str(error)
            status = getattr(error, "status_code", 403)
            return pages.render(request, "login.html", status, next=after, problem=problem)
        response = redirect(after)
        pages.set_session(request, response, session)
        return response

    @router.post("/logout")
    def log_out(request: Request, form: SentForm) -> Response:
        del form
        session = pages.get_session(request)
        if session is not None:
            ended_sessions.end_session(session.id, ENDED_SECONDS)
        response = redirect(LOGIN_PATH)
        pages.set_session(request, response, pages.sessions.begin())
        return response

    @router.post("/theme")
    def set_theme(request: Request, form: SentForm) -> Response:
        theme = get_text(form, "theme")
        response = redirect(get_next_url(form))
        if theme in THEMES:
            pages.set_theme(request, response, theme)
        return response

    return router
