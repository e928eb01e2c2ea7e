"""The gateway put together: the door, and the routes of each resource behind it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from skills.events import GATEWAY, QueryAsked
from workers.backend.channel import Channel
from workers.http.access import Access, Door, needs
from workers.http.openapi import describe_api
from workers.http.problems import add_handlers
from workers.http.routes.dead_letters import letter_routes
from workers.http.routes.events import event_routes
from workers.http.routes.health import health_routes
from workers.http.routes.queries import query_routes
from workers.http.routes.skills import skill_routes
from workers.http.routes.sources import source_routes
from workers.http.routes.uploads import upload_routes
from workers.http.routes.webhooks import webhook_routes
from workers.http.tokens import Scope
from workers.monitoring.metrics import OneProcess

_GZIP_FROM_BYTES = 1_000
_GZIP_LEVEL = 4
_ALLOWED_HEADERS = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "MCP-Protocol-Version",
    "Prefer",
    "X-Request-Id",
)


def create_gateway(
    channel: Channel, access: Access | None = None, figures: OneProcess | None = None
) -> ASGIApp:
    """The gateway over an open channel, with `figures` for Prometheus.

    access: who is heard; by default only the user, as on the home's socket.
    """
    from workers.mcp.http import mount_mcp

    access = access or Access()
    api = create_api(channel, access, figures)
    mount_mcp(api, channel)
    door = Door(api, access, channel.settings.gateway)
    origins = channel.settings.gateway.origins
    if not origins:
        return door
    # Outermost: browsers ask beforehand without a token, and scripts should see what was refused.
    return CORSMiddleware(
        door,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=_ALLOWED_HEADERS,
        expose_headers=["Location", "Link", "ETag", "Retry-After", "X-Request-Id"],
    )


def create_api(channel: Channel, access: Access, figures: OneProcess | None = None) -> FastAPI:
    """What is behind the door. No route is without a scope, unless it is open to all or signed."""
    gateway = FastAPI(
        title="skillbus",
        version="1",
        description="Keeps agent skills searchable, and answers tasks with bundles of them.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_handlers(gateway)
    gateway.state.routes, gateway.state.scopes = [], {}

    def include(router: APIRouter, *scopes: Scope) -> None:
        gateway.include_router(router, dependencies=[needs(scope) for scope in scopes])
        routes = [one for one in router.routes if isinstance(one, APIRoute)]
        gateway.state.routes += routes
        gateway.state.scopes |= {route.path_format: scopes for route in routes}

    include(health_routes(channel, figures))
    for routes in (query_routes, skill_routes, upload_routes, source_routes, event_routes):
        include(routes(channel), Scope.READ)
    include(letter_routes(channel), Scope.ADMIN)
    include(webhook_routes(channel))
    if access.tokens is None:
        _add_answers(gateway, channel)
    describe_api(gateway)
    gateway.add_middleware(GZipMiddleware, minimum_size=_GZIP_FROM_BYTES, compresslevel=_GZIP_LEVEL)
    return gateway


def _add_answers(gateway: FastAPI, channel: Channel) -> None:

    @gateway.post("/v1/answers", tags=["queries"])
    def answer(query: QueryAsked) -> dict[str, Any]:
        """Ask and wait: the bundle itself, for the commands of this machine."""
        return channel.answer(query, GATEWAY)
