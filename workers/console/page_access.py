"""Access to the console: the session cookie carries the bearer token; refusals are pages."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope
from typing_extensions import override

from config.errors import SkillbusError
from tasks.journal.protocol import EndedSessions
from workers.console.pages import (
    LOGIN_PATH,
    OPENING,
    PREFIX,
    THEME_PATH,
    Pages,
    check_local_url,
    get_local_url,
    is_cross_site,
)
from workers.console.static_files import PREFIX as STATIC_PREFIX
from workers.http.access import PageAccess
from workers.http.problems import RETRY_SECONDS

_ACTIONS_PREFIX = f"{PREFIX}/actions/"
"""Prefix of paths that receive forms; they are not pages."""

log = structlog.get_logger()


class ConsoleAccess(PageAccess):
    """Authenticates requests for pages by their cookie, unless the session was ended."""

    def __init__(self, pages: Pages, ended_sessions: EndedSessions) -> None:
        self._pages = pages
        self._ended_sessions = ended_sessions

    @override
    def covers(self, path: str) -> bool:
        return path == PREFIX or path.startswith(f"{PREFIX}/")

    @override
    def is_public(self, path: str) -> bool:
        return path in (LOGIN_PATH, THEME_PATH) or path.startswith(STATIC_PREFIX)

    @override
    async def get_bearer(self, headers: Mapping[str, str]) -> str:
        session = self._pages.sessions.open(headers)
        if session is None or not session.secret:
            return ""
        try:
            ended = await run_in_threadpool(self._ended_sessions.is_session_ended, session.id)
        except SkillbusError as error:
            log.warning("sessions cannot be checked", reason=str(error))
            raise HTTPException(503, "sessions cannot be checked now; try again") from None
        return "" if ended else session.secret

    @override
    def refuse(self, scope: Scope, error: HTTPException) -> Response:
        request = Request(scope)
        if error.status_code != 401:
            detail = str(error.detail)
            return render_error(self._pages, request, error.status_code, detail, error.headers)
        if is_cross_site(request):
            return self._pages.render(request, OPENING)
        login = f"{LOGIN_PATH}?{urlencode({'next': get_local_url(request)})}"
        if "hx-request" in request.headers:
            return Response(status_code=401, headers={"HX-Redirect": login})
        if request.method in ("GET", "HEAD"):
            return RedirectResponse(login, 303)
        return render_error(
            self._pages, request, 401, "you are no longer logged in: log in, and send this again"
        )


_TITLES = {
    400: "This cannot be done",
    401: "You are not logged in",
    403: "Not allowed",
    404: "Not found",
    405: "Not found",
    413: "Too large",
    415: "This is not valid",
    421: "Wrong address",
    422: "This is not valid",
    429: "Too many requests",
    503: "Try again in a moment",
}


def render_error(
    pages: Pages,
    request: Request,
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the page of an error, with its reason and a remedy."""
    title = _TITLES.get(status, "Something is broken")
    response = pages.render(
        request,
        "error.html",
        status,
        title=title,
        detail=detail,
        back=_find_form_page(request),
        request_id=str(request.scope.get("state", {}).get("request_id", "")),
    )
    response.headers.update(headers or {})
    if status in (429, 503):
        response.headers.setdefault("Retry-After", str(RETRY_SECONDS))
    return response


def _find_form_page(request: Request) -> str:
    """Return the page that sent a form, "" for a request without a form."""
    try:
        referrer = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    if request.method != "POST" or referrer.path.startswith(_ACTIONS_PREFIX):
        return ""
    url = f"{referrer.path}?{referrer.query}" if referrer.query else referrer.path
    return url if url != PREFIX and check_local_url(url) == url else ""
