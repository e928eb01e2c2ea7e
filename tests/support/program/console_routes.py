"""The routes of the console, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cryptography.fernet import Fernet
from fastapi.routing import APIRoute

from config.settings import Settings
from workers.console.app import create_console
from workers.console.pages import Pages
from workers.console.sessions import ConsoleSessions
from workers.http.access import AccessRules
from workers.http.route_services import RouteServices


def list_console_routes() -> list[APIRoute]:
    """All routes, with paths below `/console`; none can be called."""
    backend = cast(Any, SimpleNamespace(settings=Settings(), journal=None, skills=None))
    pages = Pages(ConsoleSessions(Fernet.generate_key()))
    console = create_console(AccessRules(), pages, RouteServices.create(backend, None))
    found: list[APIRoute] = []
    for one in console.routes:
        found += [one] if isinstance(one, APIRoute) else _find_included(one)
    return found


def _find_included(route: object) -> list[APIRoute]:
    """The routes of an included router."""
    router = getattr(route, "original_router", None)
    return [one for one in getattr(router, "routes", ()) if isinstance(one, APIRoute)]
