"""The ASGI application of the gateway: access checks, then the routes of each resource."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp

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
from workers.http.problems import install_error_handlers, problem_response
from workers.http.responses.head_requests import HeadRequests
from workers.http.route_services import RouteServices
from workers.http.routes import (
    links,
    outcomes,
    pins,
    queries,
    revisions,
    skills,
    sources,
    telemetry,
    uploads,
    usage,
    webhooks,
    well_known,
)
from workers.http.routes.library import graph, search
from workers.http.routes.operations import dead_letters, health, settings, tokens, work
from workers.http.routes.operations.events import event_routes
from workers.http.routes.quality import routes as quality
from workers.http.routes.review import decisions, waivers
from workers.http.tokens import TokenScope
from workers.mcp.http import mount_mcp
from workers.monitoring.metrics import ProcessMetrics

_GZIP_FROM_BYTES = 1_000
_GZIP_LEVEL = 4
_NO_ROUTE = "no endpoint has this path; /v1/openapi.json describes the API"
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
        console = create_console(access, pages, services)
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
    install_error_handlers(gateway, problem_response, _NO_ROUTE)
    gateway.state.routes, gateway.state.scopes = [], {}

    def include(router: APIRouter, *scopes: TokenScope) -> None:
        gateway.include_router(router, dependencies=[require_scope(scope) for scope in scopes])
        routes = [one for one in router.routes if isinstance(one, APIRoute)]
        gateway.state.routes += routes
        gateway.state.scopes |= {route.path_format: scopes for route in routes}

    webhooks.check_webhooks(backend.settings.webhooks)
    services = services or RouteServices.create(backend, access.tokens)
    services.install(gateway.state)
    include(health.router)
    if process_metrics is not None:
        gateway.state.process_metrics = process_metrics
        include(health.metrics_router)
    for module in (queries, outcomes, search, revisions, graph, pins, skills, uploads, sources):
        include(module.router, TokenScope.READ)
    include(event_routes(backend), TokenScope.READ)
    for module in (work, usage, quality, telemetry):
        include(module.router, TokenScope.READ)
    for module in (dead_letters, links, decisions, waivers, settings, tokens):
        include(module.router, TokenScope.ADMIN)
    include(webhooks.router)
    include(well_known.router)
    if access.tokens is None:
        include(queries.local_router)
    install_openapi(gateway)
    gateway.add_middleware(GZipMiddleware, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)
    return gateway
