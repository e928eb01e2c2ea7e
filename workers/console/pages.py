"""Rendering of pages: templates, response headers, the session's cookie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from workers.console.annotated_text import line_url
from workers.console.sessions import ConsoleSessions, Session
from workers.console.static_files import StaticFiles
from workers.console.text_display import (
    Url,
    format_bytes,
    format_event_type,
    format_iso_time,
    format_json,
    format_sentence,
    format_time,
    review_path,
    shorten,
    show_code,
    show_line,
    show_value,
    skill_path,
)
from workers.http.authentication import Caller
from workers.http.tokens import TokenScope
from workers.quantities import format_duration, format_seconds

PREFIX = "/console"
LOGIN_PATH = f"{PREFIX}/login"
THEME_PATH = f"{PREFIX}/theme"
OPENING = "opening.html"
THEMES = ("auto", "light", "dark")

_HOST = re.compile(r"[A-Za-z0-9._\-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")
_THEME_COOKIE = "skillbus_theme"
_THEME_SECONDS = 365 * 86_400
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    # `no-referrer` would make browsers send forms with `Origin: null`.
    "Referrer-Policy": "same-origin",
}


class Pages:
    """Renders the pages of a console.

    Values are escaped and formatted by `show_value`; a missing value is an error.
    """

    def __init__(self, sessions: ConsoleSessions) -> None:
        self.sessions = sessions
        self.static_files = StaticFiles()
        self._environment = _create_environment(self.static_files)

    def render(
        self, request: Request, template: str, status_code: int = 200, **context: Any
    ) -> HTMLResponse:
        """Render a page. Its template gets `context`, and the values that the
        frame of all pages shows."""
        session, is_new = self._find_session(request)
        if is_new and is_cross_site(request) and template != OPENING:
            return self.render(request, OPENING)
        caller: Caller | None = getattr(request.state, "caller", None)
        html = self._environment.get_template(template).render(
            caller=caller,
            is_logged_in=bool(session.secret),
            may_read=caller is not None and request.url.path != LOGIN_PATH,
            may_write=caller is not None and caller.scope >= TokenScope.WRITE,
            is_admin=caller is not None and caller.is_admin,
            csrf_token=self.sessions.create_csrf_token(session),
            theme=get_theme(request),
            here=get_local_url(request),
            is_get=request.method == "GET",
            **({"section": ""} | context),
        )
        response = HTMLResponse(html.encode("utf-8", "replace"), status_code, headers=_HEADERS)
        if is_new and template != OPENING:
            self.set_session(request, response, session)
        return response

    def render_part(self, template: str, **context: Any) -> Markup:
        """Render a part of a page that depends on no request or session."""
        return Markup(self._environment.get_template(template).render(**context))  # noqa: S704 - escaped by it

    def respond_part(self, request: Request, html: Markup) -> HTMLResponse:
        """Return the response with a part of a page, which a page requested."""
        session, is_new = self._find_session(request)
        response = HTMLResponse(html.encode("utf-8", "replace"), headers=_HEADERS)
        if is_new:
            self.set_session(request, response, session)
        return response

    def get_session(self, request: Request) -> Session | None:
        """Return the session of a request, or None."""
        return self.sessions.open(request.headers)

    def set_session(self, request: Request, response: Response, session: Session) -> None:
        """Set the cookie of a session."""
        _set_cookie(request, response, self.sessions.cookie_name, self.sessions.seal(session))

    def set_theme(self, request: Request, response: Response, theme: str) -> None:
        """Set the cookie of a theme."""
        _set_cookie(request, response, _THEME_COOKIE, theme, _THEME_SECONDS)

    def _find_session(self, request: Request) -> tuple[Session, bool]:
        """Return the session of a request, and whether its cookie has to be set."""
        session = self.get_session(request)
        if session is None:
            return self.sessions.begin(), True
        renewed = self.sessions.renew(session)
        return (session, False) if renewed is None else (renewed, True)


def _set_cookie(
    request: Request, response: Response, name: str, value: str, seconds: int | None = None
) -> None:
    """Set a cookie of the console. seconds: None to keep it as long as the browser runs."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=PREFIX,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def redirect(url: str) -> RedirectResponse:
    """Return the response to a form that was carried out: a redirect to a page."""
    return RedirectResponse(url, 303)


def is_cross_site(request: Request) -> bool:
    """Return whether a link of another site led here.

    The browser then has not sent the session's cookie, and setting one would replace it. The page
    `OPENING` requests the wanted page again.
    """
    return request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site"


def get_theme(request: Request) -> str:
    """Return the theme of the cookie, `auto` without one."""
    theme = request.cookies.get(_THEME_COOKIE, "")
    return theme if theme in THEMES else THEMES[0]


def get_local_url(request: Request) -> Url:
    """Return path and query of a request's URL."""
    path = quote(request.scope["path"].encode("utf-8", "surrogatepass"), safe="/:@")
    query = request.scope["query_string"].decode("ascii", "replace")
    return Url(f"{path}?{query}" if query else path)


def get_base_url(request: Request) -> str:
    """Return scheme and host of a request's URL; the gateway has checked the host."""
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host if _HOST.fullmatch(host) else '127.0.0.1'}"


def check_local_url(url: str) -> str:
    """Return a URL if it is a page of the console, else the URL of the first page."""
    is_local = url == PREFIX or url.startswith((f"{PREFIX}/", f"{PREFIX}?"))
    return url if is_local and "\\" not in url and url.isprintable() else PREFIX


def find_cursor(next_path: str | None) -> str:
    """Return the cursor in the path of a list's next page, "" on the last page."""
    return dict(parse_qsl(urlsplit(next_path or "").query)).get("cursor", "")


def build_url(path: str, parameters: Mapping[str, object]) -> Url:
    """Return the URL of a page with the parameters that are set."""
    chosen = {name: value for name, value in parameters.items() if value not in (None, "")}
    return Url(f"{path}?{urlencode(chosen, doseq=True)}" if chosen else path)


def _create_environment(static_files: StaticFiles) -> Environment:
    environment = Environment(
        loader=PackageLoader("workers.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=show_value,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {
        "static_url": static_files.get_url,
        "skill_path": skill_path,
        "review_path": review_path,
        "line_url": line_url,
        "url": build_url,
        "themes": THEMES,
    }
    environment.filters |= {
        "line": show_line,
        "code": show_code,
        "time": format_time,
        "iso_time": format_iso_time,
        "duration": format_duration,
        "seconds": format_seconds,
        "json": format_json,
        "bytes": format_bytes,
        "event_name": format_event_type,
        "shorten": shorten,
        "sentence": format_sentence,
        "unchanged": escape,
    }
    return environment
