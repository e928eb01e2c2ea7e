"""Routes of the console: what changes something is recorded, and needs the token of a form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cryptography.fernet import Fernet
from fastapi.routing import APIRoute

from config.settings import Settings
from workers.audit.requests import CONSOLE_FORMS
from workers.console.app import create_console
from workers.console.forms import read_form
from workers.console.pages import PREFIX, Pages
from workers.console.sessions import ConsoleSessions
from workers.http.access import AccessRules
from workers.http.route_services import RouteServices

UNCHANGING = {"/login", "/logout", "/theme", "/ask", "/ask/{query_id}/cancel"}
"""Forms that change nothing of the library."""


def list_routes() -> list[APIRoute]:
    backend = cast(Any, SimpleNamespace(settings=Settings(), journal=None))
    pages = Pages(ConsoleSessions(Fernet.generate_key()))
    console = create_console(backend, AccessRules(), pages, RouteServices.create(backend, None))
    found: list[APIRoute] = []
    for one in console.routes:
        found += [one] if isinstance(one, APIRoute) else find_included(one)
    return found


def find_included(route: object) -> list[APIRoute]:
    """The routes of an included router."""
    router = getattr(route, "original_router", None)
    return [one for one in getattr(router, "routes", ()) if isinstance(one, APIRoute)]


def test_each_form_is_recorded_or_changes_nothing() -> None:
    routes = list_routes()
    posts = {one.path for one in routes if "POST" in one.methods}
    assert len(posts) > 10
    recorded = {path.removeprefix(PREFIX) for path in CONSOLE_FORMS}
    assert posts == recorded | UNCHANGING
    assert {method for one in routes for method in one.methods} == {"GET", "POST"}


def test_each_form_needs_its_token() -> None:
    for one in list_routes():
        if "POST" in one.methods:
            needed = {dependency.call for dependency in one.dependant.dependencies}
            assert read_form in needed, one.path
