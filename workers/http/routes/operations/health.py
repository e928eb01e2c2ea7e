"""Health probes, the status of the deployment, and metrics."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from workers.backend.store_backend import StoreBackend
from workers.http.authentication import NEEDS_READ, Caller, CurrentCaller
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.models import ResponseModel
from workers.http.problems import RETRY_SECONDS
from workers.monitoring.metrics import CONTENT_TYPE, ProcessMetrics
from workers.monitoring.status import visible_status

log = structlog.get_logger()

_WORK_STALLS = "processing is stalled"


class Health(ResponseModel):
    """The process is running."""

    state: str = "alive"


class Readiness(ResponseModel):
    """Whether requests can be served. reasons: why not, without details of the deployment."""

    ready: bool
    reasons: list[str]


router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])
"""The route of metrics, for a process that measures itself."""


@router.get("/healthz")
async def health() -> Health:
    """Liveness: 200 as long as this process answers."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Not ready"}})
async def readiness(backend: CurrentBackend, response: Response) -> Readiness:
    """Readiness: 200, or 503 with the reasons. `GET /v1/status` has the details."""
    # Not `run_in_threadpool`: requests that wait for a server may hold all of its threads.
    reasons = await asyncio.to_thread(_get_reasons, backend)
    if reasons:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return Readiness(ready=not reasons, reasons=reasons)


@router.get("/v1/status", dependencies=NEEDS_READ)
def status(backend: CurrentBackend, caller: CurrentCaller) -> dict[str, Any]:
    """Counts of skills and open jobs, sources, and in a distributed deployment the servers. For
    a caller who may not see all sources: those that it may see, with their counts."""
    return describe_status(backend, caller)


@metrics_router.get(
    "/metrics",
    dependencies=NEEDS_READ,
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}},
)
def metrics(
    backend: CurrentBackend,
    process_metrics: Annotated[ProcessMetrics, from_state("process_metrics")],
    caller: CurrentCaller,
) -> Response:
    """Metrics of this process and of the library, in Prometheus' text format."""
    if backend.find_visible_sources(caller.reader) is not None:
        raise HTTPException(
            403, "metrics count skills of all sources, which this token may not see"
        )
    return Response(process_metrics.render(), media_type=CONTENT_TYPE)


def describe_status(
    backend: StoreBackend, caller: Caller, *, recent: bool = False
) -> dict[str, Any]:
    """Return the status of the deployment that this caller may see. recent: use a status that is
    some seconds old rather than wait for a server."""
    if backend.find_visible_sources(caller.reader) is None:
        return backend.get_recent_status() if recent else backend.get_status()
    problem = _WORK_STALLS if backend.get_problem() else ""
    return visible_status(backend.graph_for(caller.reader), problem)


def _get_reasons(backend: StoreBackend) -> list[str]:
    """Return why requests cannot be served; details are logged only, since `/readyz` is public."""
    unreachable = backend.get_unreachable()
    for name, problem in unreachable.items():
        log.warning("not ready", part=name, reason=problem)
    reasons = [f"{name} does not answer" for name in unreachable]
    if backend.stopping.is_set():
        reasons.append("it is stopping")
    elif backend.warming:
        reasons.append("models and library are not loaded yet")
    if not reasons and (problem := backend.get_problem()):
        log.warning("not ready", reason=problem)
        reasons.append(_WORK_STALLS)
    return reasons
