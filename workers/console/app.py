"""The ASGI application of the console, mounted at `/console` of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from config.errors import SkillbusError
from skills.events import describe_problems
from workers.backend.store_backend import StoreBackend
from workers.console.page_access import render_error
from workers.console.pages import PREFIX, Pages
from workers.console.views.ask import ask_views
from workers.console.views.graph import graph_views
from workers.console.views.library import library_views
from workers.console.views.login import login_views
from workers.console.views.outcomes import outcome_views
from workers.console.views.quality import quality_views
from workers.console.views.review import review_views
from workers.console.views.settings import settings_views
from workers.console.views.skill import skill_views
from workers.console.views.sources import source_views
from workers.console.views.use import use_views
from workers.console.views.work import work_views
from workers.http.access import AccessRules
from workers.http.problems import (
    allow_header,
    describe_error,
    get_http_status,
    handle_disconnect,
)
from workers.http.route_services import RouteServices

log = structlog.get_logger()


def create_console(
    backend: StoreBackend,
    access: AccessRules,
    pages: Pages,
    services: RouteServices,
) -> FastAPI:
    """Return the application with the pages of a deployment, to be mounted
    behind `AccessMiddleware`.

    services: of the gateway; its limits count requests of both.
    """
    console = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    console.state.pages = pages
    console.add_exception_handler(SkillbusError, _handle_skillbus_error)
    console.add_exception_handler(RequestValidationError, _handle_validation_error)
    console.add_exception_handler(HTTPException, _handle_http_exception)
    console.add_exception_handler(ClientDisconnect, handle_disconnect)
    console.add_exception_handler(Exception, _handle_unexpected_error)
    routers = [
        login_views(access, pages, backend.journal),
        ask_views(backend, pages, services.queries),
        outcome_views(backend),
        quality_views(backend, pages, services.quality),
        library_views(backend, pages),
        skill_views(backend, pages, services.usage),
        graph_views(backend, pages),
        review_views(backend, pages),
        source_views(backend, pages),
        work_views(backend, pages),
        use_views(pages, services.usage),
        settings_views(pages, services.settings, services.tokens),
        _static_files(pages),
    ]
    for router in routers:
        console.include_router(router)
    console.state.routes = [
        route for router in routers for route in router.routes if isinstance(route, APIRoute)
    ]
    return console


def _static_files(pages: Pages) -> APIRouter:
    router = APIRouter()

    @router.get("/static/{digest}/{name}")
    def get_static_file(digest: str, name: str, request: Request) -> Response:
        return pages.static_files.respond(digest, name, request.headers.get("accept-encoding", ""))

    return router


async def _handle_skillbus_error(request: Request, error: Any) -> Response:
    return _render(request, get_http_status(error), describe_error(error, request.state.caller))


async def _handle_validation_error(request: Request, error: Any) -> Response:
    return _render(request, 422, describe_problems(error.errors()))


async def _handle_http_exception(request: Request, error: Any) -> Response:
    detail = str(error.detail)
    if detail in (HTTPStatus.NOT_FOUND.phrase, HTTPStatus.METHOD_NOT_ALLOWED.phrase):
        detail = "there is no such page; its address may be incomplete"
    headers = error.headers
    if error.status_code == 405:
        path = request.scope["path"].removeprefix(PREFIX)
        headers = allow_header(request.app.state.routes, path) or headers
    return _render(request, error.status_code, detail, headers)


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    log.error("request failed", error=repr(error))
    return _render(request, 500, "this is a bug in skillbus; its log says more")


def _render(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    return render_error(request.app.state.pages, request, status, detail, headers)
