"""The ASGI application of the console, mounted at `/console` of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute

from workers.console.page_access import render_error
from workers.console.pages import Pages
from workers.console.shared_fragments import SharedFragments
from workers.console.views import (
    ask,
    graph,
    library,
    login,
    outcomes,
    quality,
    review,
    settings,
    skill,
    sources,
    use,
    work,
)
from workers.http.access import AccessRules
from workers.http.problems import install_error_handlers
from workers.http.route_services import RouteServices

_VIEWS = (
    *(login, ask, outcomes, quality, library, skill, graph),
    *(review, sources, work, use, settings),
)
_NO_PAGE = "there is no such page; its address may be incomplete"

_static_router = APIRouter()


@_static_router.get("/static/{digest}/{name}")
def get_static_file(request: Request, digest: str, name: str) -> Response:
    """Return a static file."""
    pages: Pages = request.app.state.pages
    return pages.static_files.respond(digest, name, request.headers.get("accept-encoding", ""))


def create_console(access: AccessRules, pages: Pages, services: RouteServices) -> FastAPI:
    """Return the application with the pages of a deployment, to be mounted
    behind `AccessMiddleware`.

    services: of the gateway; its limits count requests of both.
    """
    console = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    console.state.access, console.state.pages, console.state.services = access, pages, services
    console.state.fragments = SharedFragments()

    def respond(
        request: Request,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Response:
        detail = _NO_PAGE if status == 405 else detail
        return render_error(pages, request, status, detail, headers)

    install_error_handlers(console, respond, _NO_PAGE)
    routers = [*(view.router for view in _VIEWS), _static_router]
    for router in routers:
        console.include_router(router)
    console.state.routes = [
        route for router in routers for route in router.routes if isinstance(route, APIRoute)
    ]
    return console
