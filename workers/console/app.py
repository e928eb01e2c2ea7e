"""The ASGI application of the console, mounted at `/console` of a gateway."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from config.errors import SkillbusError
from skills.events import describe_problems
from workers.backend.store_backend import StoreBackend
from workers.console.page_access import render_error
from workers.console.pages import Pages
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
from workers.http.problems import describe_error, get_http_status
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
    console.add_exception_handler(Exception, _handle_unexpected_error)
    console.include_router(login_views(access, pages, backend.journal))
    console.include_router(ask_views(backend, pages, services.queries))
    console.include_router(outcome_views(backend))
    console.include_router(quality_views(backend, pages, services.quality))
    console.include_router(library_views(backend, pages))
    console.include_router(skill_views(backend, pages, services.usage))
    console.include_router(graph_views(backend, pages))
    console.include_router(review_views(backend, pages))
    console.include_router(source_views(backend, pages))
    console.include_router(work_views(backend, pages))
    console.include_router(use_views(pages, services.usage))
    console.include_router(settings_views(pages, services.settings, services.tokens))

    @console.get("/static/{digest}/{name}")
    def get_static_file(digest: str, name: str, request: Request) -> Response:
        return pages.static_files.respond(digest, name, request.headers.get("accept-encoding", ""))

    return console


async def _handle_skillbus_error(request: Request, error: Any) -> Response:
    return _render(request, get_http_status(error), describe_error(error, request.state.caller))


async def _handle_validation_error(request: Request, error: Any) -> Response:
    return _render(request, 422, describe_problems(error.errors()))


async def _handle_http_exception(request: Request, error: Any) -> Response:
    detail = str(error.detail)
    if detail in (HTTPStatus.NOT_FOUND.phrase, HTTPStatus.METHOD_NOT_ALLOWED.phrase):
        detail = "there is no such page; its address may be incomplete"
    return _render(request, error.status_code, detail)


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    log.error("request failed", error=repr(error))
    return _render(request, 500, "this is a bug in skillbus; its log says more")


def _render(request: Request, status: int, detail: str) -> Response:
    return render_error(request.app.state.pages, request, status, detail)
