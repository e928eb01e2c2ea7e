"""Whether the gateway is there, whether it can be used, and how the library stands."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from workers.backend.store_backend import StoreBackend
from workers.http.access import require_scope
from workers.http.problems import RETRY_SECONDS
from workers.http.tokens import TokenScope
from workers.monitoring.metrics import CONTENT_TYPE, ProcessMetrics

log = structlog.get_logger()


class Health(BaseModel):
    """This process answers."""

    model_config = ConfigDict(frozen=True)

    state: str = "alive"


class Readiness(BaseModel):
    """Whether requests can be served; reasons: what is missing, in words for anybody."""

    model_config = ConfigDict(frozen=True)

    ready: bool
    reasons: list[str]


def health_routes(backend: StoreBackend, process_metrics: ProcessMetrics | None) -> APIRouter:
    """The routes for whoever watches over this process, with `figures` for Prometheus."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def health() -> Health:
        """Alive: 200 as long as this process answers at all."""
        return Health()

    @router.get("/readyz", responses={503: {"model": Readiness, "description": "Not ready"}})
    async def readiness(response: Response) -> Readiness:
        """Ready for requests: 200, else 503 with the reasons. `GET /v1/status` says more."""
        # Requests that wait for a server may hold all threads that requests have.
        reasons = await asyncio.to_thread(_reasons, backend)
        if reasons:
            response.status_code = 503
            response.headers["Retry-After"] = str(RETRY_SECONDS)
        return Readiness(ready=not reasons, reasons=reasons)

    @router.get("/v1/status", dependencies=[require_scope(TokenScope.READ)])
    def status() -> dict[str, Any]:
        """Skills by state, what is under way, and sources; on servers also how these are."""
        return backend.get_status()

    if process_metrics is not None:

        @router.get(
            "/metrics",
            dependencies=[require_scope(TokenScope.READ)],
            response_class=Response,
            responses={
                200: {"content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}
            },
        )
        def metrics() -> Response:
            """Figures of this process and of the library, in Prometheus' text format."""
            return Response(process_metrics.render(), media_type=CONTENT_TYPE)

    return router


def _reasons(backend: StoreBackend) -> list[str]:
    """Why requests cannot be served. Details are for the log: anybody may ask."""
    away = backend.get_unreachable()
    for name, problem in away.items():
        log.warning("not ready", part=name, reason=problem)
    reasons = [f"{name} does not answer" for name in away]
    if backend.stopping.is_set():
        reasons.append("it is stopping")
    if not reasons and (problem := backend.get_problem()):
        log.warning("not ready", reason=problem)
        reasons.append("work does not go on")
    return reasons
