"""The ASGI application of the gateway: access checks, then the routes of each resource."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp

from skills.events import GATEWAY_SOURCE, QueryAsked, describe_validation_error
from workers.audit.log import AuditLog
from workers.backend.store_backend import StoreBackend
from workers.console.app import create_console
from workers.console.page_access import ConsoleAccess
from workers.console.pages import PREFIX as CONSOLE_PREFIX
from workers.console.pages import Pages
from workers.console.sessions import open_console_sessions
from workers.http.access import AccessMiddleware, AccessRules
from workers.http.authentication import require_scope
from workers.http.openapi import install_openapi
from workers.http.problems import install_error_handlers
from workers.http.responses.head_requests import HeadRequests
from workers.http.route_services import RouteServices
from workers.http.routes.library.graph import graph_routes
from workers.http.routes.library.search import library_routes
from workers.http.routes.links import link_routes
from workers.http.routes.operations.dead_letters import dead_letter_routes
from workers.http.routes.operations.events import event_routes
from workers.http.routes.operations.health import health_routes
from workers.http.routes.operations.settings import settings_routes
from workers.http.routes.operations.tokens import token_routes
from workers.http.routes.operations.work import work_routes
from workers.http.routes.outcomes import outcome_routes
from workers.http.routes.pins import pin_routes
from workers.http.routes.quality.routes import quality_routes
from workers.http.routes.queries import query_routes
from workers.http.routes.review.decisions import review_routes
from workers.http.routes.review.waivers import waiver_routes
from workers.http.routes.revisions import revision_routes
from workers.http.routes.skills import skill_routes
from workers.http.routes.sources import source_routes
from workers.http.routes.telemetry import telemetry_routes
from workers.http.routes.uploads import upload_routes
from workers.http.routes.usage import usage_routes
from workers.http.routes.webhooks import webhook_routes
from workers.http.routes.well_known import well_known_routes
from workers.http.tokens import TokenScope
from workers.mcp.http import mount_mcp
from workers.monitoring.metrics import ProcessMetrics

_GZIP_FROM_BYTES = 1_000
_GZIP_LEVEL = 4
_ALLOWED_HEADERS = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Prefer",
    "X-Request-Id",
    "traceparent",
    "tracestate",
)
_EXPOSED_HEADERS = (
    "Allow",
    "Bundle-Skills",
    "Bundle-Status",
    "ETag",
    "Link",
    "Location",
    "Preference-Applied",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)


def create_gateway(
    backend: StoreBackend,
    access: AccessRules | None = None,
    process_metrics: ProcessMetrics | None = None,
) -> ASGIApp:
    """Return the gateway of a deployment, with MCP and the console.

    access: by default the rules of the home's socket. process_metrics: served
    at `/metrics`, if given.
    """
    access = access or AccessRules()
    services = RouteServices.create(backend, access.tokens)
    api = create_api(backend, access, process_metrics, services)
    mount_mcp(api, backend)
    page_access = None
    if backend.settings.gateway.console and access.tokens is not None:
        pages = Pages(open_console_sessions(backend.settings))
        page_access = ConsoleAccess(pages, backend.journal)
        api.add_route(CONSOLE_PREFIX, lambda _: RedirectResponse(f"{CONSOLE_PREFIX}/", 303))
        console = create_console(backend, access, pages, services)
        api.mount(CONSOLE_PREFIX, console)
    audit_log = AuditLog(backend.settings)
    app = HeadRequests(api)
    checked = AccessMiddleware(app, access, backend.settings.gateway, audit_log, page_access)
    origins = backend.settings.gateway.origins
    if not origins:
        return checked
    # Outermost: preflight requests carry no token, and pages should be able to read refusals.
    return CORSMiddleware(
        checked,
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=_ALLOWED_HEADERS,
        expose_headers=_EXPOSED_HEADERS,
    )


def create_api(
    backend: StoreBackend,
    access: AccessRules,
    process_metrics: ProcessMetrics | None = None,
    services: RouteServices | None = None,
) -> FastAPI:
    """Return the routes without access checks, MCP and console.

    Every route requires a scope, except the health probes and the signed webhooks.
    """
    gateway = FastAPI(
        title="skillbus",
        version="1",
        description="Keeps agent skills searchable, and answers tasks with bundles of them.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_error_handlers(gateway)
    gateway.state.routes, gateway.state.scopes = [], {}

    def include(router: APIRouter, *scopes: TokenScope) -> None:
        gateway.include_router(router, dependencies=[require_scope(scope) for scope in scopes])
        routes = [one for one in router.routes if isinstance(one, APIRoute)]
        gateway.state.routes += routes
        gateway.state.scopes |= {route.path_format: scopes for route in routes}

    services = services or RouteServices.create(backend, access.tokens)
    include(health_routes(backend, process_metrics))
    include(query_routes(backend, services.queries), TokenScope.READ)
    for routes in (
        outcome_routes,
        library_routes,
        revision_routes,
        graph_routes,
        pin_routes,
        skill_routes,
        upload_routes,
        source_routes,
        event_routes,
        work_routes,
    ):
        include(routes(backend), TokenScope.READ)
    include(usage_routes(services.usage), TokenScope.READ)
    include(quality_routes(services.quality), TokenScope.READ)
    include(telemetry_routes(backend), TokenScope.READ)
    include(dead_letter_routes(backend), TokenScope.ADMIN)
    include(link_routes(backend), TokenScope.ADMIN)
    include(review_routes(backend), TokenScope.ADMIN)
    include(waiver_routes(backend), TokenScope.ADMIN)
    include(settings_routes(services.settings), TokenScope.ADMIN)
    include(token_routes(services.tokens), TokenScope.ADMIN)
    include(webhook_routes(backend))
    include(well_known_routes(backend))
    if access.tokens is None:
        _add_answer_route(gateway, backend)
    install_openapi(gateway)
    gateway.add_middleware(GZipMiddleware, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)
    return gateway


def _add_answer_route(gateway: FastAPI, backend: StoreBackend) -> None:
    @gateway.post("/v1/answers", tags=["queries"])
    def answer(query: QueryAsked) -> dict[str, Any]:
        """Answer a query and return its bundle; for the commands on this machine.

        Raises HTTPException (422) for invalid text, as `record_job` does.
        """
        try:
            return backend.answer_query(query, GATEWAY_SOURCE)
        except ValidationError as error:
            raise HTTPException(422, describe_validation_error(error)) from None
