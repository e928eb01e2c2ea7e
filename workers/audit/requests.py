"""Audit records of HTTP requests: which routes change something, and the object they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection
from starlette.routing import compile_path
from starlette.types import Scope

from workers.audit.commands import get_outcome
from workers.audit.log import AuditLog, Outcome, get_local_principal

_OBJECT, _ACTION, _OUTCOME = "audit_object", "audit_action", "audit_outcome"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class ChangingRoute:
    """A route that changes something.

    action: of requests for which the route notes none. parameters: names of path or query
    parameters that name the object; used if the route notes no object. only_noted: whether a
    request is a change only if its route notes an object.
    """

    action: str
    parameters: tuple[str, ...] = ()
    only_noted: bool = False


CHANGING_ROUTES: dict[tuple[str, str], ChangingRoute] = {
    ("POST", "/v1/skills"): ChangingRoute("skills.upload", ("source", "path")),
    ("DELETE", "/v1/skills/{skill_id}"): ChangingRoute("skills.remove", ("skill_id",)),
    ("DELETE", "/v1/skills/{skill_id}/revisions"): ChangingRoute("skills.purge", ("skill_id",)),
    ("POST", "/v1/pins"): ChangingRoute("pins.add"),
    ("DELETE", "/v1/pins/{skill_id}"): ChangingRoute("pins.remove", ("skill_id",)),
    ("POST", "/v1/waivers"): ChangingRoute("waivers.add"),
    ("DELETE", "/v1/waivers"): ChangingRoute("waivers.remove", ("skill_id", "rule")),
    ("POST", "/v1/review"): ChangingRoute("review.decide"),
    ("DELETE", "/v1/review/{skill_id}"): ChangingRoute("review.reopen", ("skill_id",)),
    ("POST", "/v1/sources"): ChangingRoute("sources.add"),
    ("POST", "/v1/sources/{source_id}"): ChangingRoute("sources.refresh", ("source_id",)),
    ("PUT", "/v1/sources/{source_id}/groups"): ChangingRoute("sources.groups", ("source_id",)),
    ("DELETE", "/v1/sources/{source_id}"): ChangingRoute("sources.remove", ("source_id",)),
    ("POST", "/v1/tokens"): ChangingRoute("tokens.add"),
    ("DELETE", "/v1/tokens/{name}"): ChangingRoute("tokens.revoke", ("name",)),
    ("POST", "/v1/events"): ChangingRoute("events.submit"),
    ("POST", "/v1/queries/{query_id}/outcomes"): ChangingRoute("outcomes.report", ("query_id",)),
    ("DELETE", "/v1/queries/{query_id}/outcomes"): ChangingRoute("outcomes.forget", ("query_id",)),
    ("DELETE", "/v1/evaluations/{evaluation_id}"): ChangingRoute(
        "evaluations.remove", ("evaluation_id",)
    ),
    ("POST", "/v1/otlp/logs"): ChangingRoute("outcomes.report"),
    ("POST", "/v1/letters/{letter_id}/retry"): ChangingRoute("dead.retry", ("letter_id",)),
    ("DELETE", "/v1/letters/{letter_id}"): ChangingRoute("dead.discard", ("letter_id",)),
    ("POST", "/v1/links/dismissed"): ChangingRoute("links.dismiss"),
    ("DELETE", "/v1/links/dismissed"): ChangingRoute("links.restore", ("source", "target", "type")),
    ("POST", "/v1/webhooks/{host}"): ChangingRoute("webhooks.accept", only_noted=True),
    ("POST", "/mcp"): ChangingRoute("outcomes.report", only_noted=True),
}
"""Routes that change something, by method and path. Queries change nothing."""

CONSOLE_FORMS: dict[str, ChangingRoute] = {
    "/console/actions/outcomes/report": ChangingRoute("outcomes.report"),
    "/console/actions/outcomes/withdraw": ChangingRoute("outcomes.forget"),
    "/console/actions/evaluations/remove": ChangingRoute("evaluations.remove"),
    "/console/actions/skills/remove": ChangingRoute("skills.remove"),
    "/console/actions/pins/add": ChangingRoute("pins.add"),
    "/console/actions/pins/remove": ChangingRoute("pins.remove"),
    "/console/actions/review/decide": ChangingRoute("review.decide"),
    "/console/actions/review/reopen": ChangingRoute("review.reopen"),
    "/console/actions/waivers/add": ChangingRoute("waivers.add"),
    "/console/actions/waivers/remove": ChangingRoute("waivers.remove"),
    "/console/actions/links/dismiss": ChangingRoute("links.dismiss"),
    "/console/actions/links/restore": ChangingRoute("links.restore"),
    "/console/actions/sources/refresh": ChangingRoute("sources.refresh"),
    "/console/actions/tokens/add": ChangingRoute("tokens.add"),
    "/console/actions/tokens/revoke": ChangingRoute("tokens.revoke"),
    "/console/actions/letters/retry": ChangingRoute("dead.retry"),
    "/console/actions/letters/discard": ChangingRoute("dead.discard"),
}
"""Forms of the console that change something, by path. Their views note the object."""

UNCHANGING_ROUTES = {
    ("POST", "/v1/queries"),
    ("DELETE", "/v1/queries/{query_id}"),
    ("POST", "/v1/answers"),
    ("POST", "/console/ask"),
    ("POST", "/console/ask/{query_id}/cancel"),
    ("POST", "/console/login"),
    ("POST", "/console/logout"),
    ("POST", "/console/theme"),
}
"""Routes of other methods than GET that do not change the library."""

_UNCHECKED = [
    (method, compile_path(path)[0])
    # The tool that changes something checks the log itself: the others only answer.
    for method, path in UNCHANGING_ROUTES | {("POST", "/mcp")}
]


def note_object(request: HTTPConnection, name: str, action: str = "") -> None:
    """Note the object that a request changes, for its audit record. action: "" for that of the
    route."""
    setattr(request.state, _OBJECT, name)
    setattr(request.state, _ACTION, action)


def note_failure(request: HTTPConnection, error: BaseException) -> None:
    """Note the error of a change, for the audit record of a response whose status is 200."""
    setattr(request.state, _OUTCOME, get_outcome(error))


class RequestRecorder:
    """Writes the audit record of one request, if the request changes something."""

    def __init__(self, audit_log: AuditLog, scope: Scope, principal: str) -> None:
        self._log = audit_log
        self._scope = scope
        self._principal = principal or get_local_principal()
        self._is_recorded = False

    def check(self) -> None:
        """Raise MisconfiguredError if the request may be a change and could not be recorded."""
        method, path = self._scope["method"], self._scope["path"]
        if method in _SAFE_METHODS:
            return
        # The route is not known yet: the request has not reached the router.
        if any(method == one and pattern.match(path) for one, pattern in _UNCHECKED):
            return
        self._log.check()

    def is_change(self) -> bool:
        """Return whether the request changes something, by what its route has noted so far."""
        route = self._find_route()
        if route is None:
            return False
        return not route.only_noted or self._scope["state"].get(_OBJECT) is not None

    def is_due(self, *, is_end: bool) -> bool:
        """Return whether the record has to be written now.

        It is written before the response starts, so that every answered change is recorded, or as
        soon as the route has noted the object that makes the request a change. At the end of a
        request without a response, it is written if an object was noted.
        """
        route = self._find_route()
        if route is None or self._is_recorded:
            return False
        noted = self._scope["state"].get(_OBJECT)
        return noted is not None if route.only_noted else not is_end or noted is not None

    def record(self, status: int, request_id: str) -> None:
        """Write the record; raises PermanentError if that fails."""
        route = self._find_route()
        if route is None:
            return
        self._is_recorded = True
        of_status: Outcome = "done" if status < 400 else "refused" if status < 500 else "failed"
        noted = self._scope["state"]
        outcome: Outcome = noted.get(_OUTCOME) or of_status
        name = noted.get(_OBJECT) or _describe(self._scope, route.parameters)
        principal = self._principal
        if route.action == "webhooks.accept":
            principal = f"webhook:{self._scope['path_params']['host']}"
        action = noted.get(_ACTION) or route.action
        self._log.append(principal, action, name, outcome, request_id)

    def _find_route(self) -> ChangingRoute | None:
        matched = self._scope.get("route")
        method, path = self._scope["method"], self._scope["path"]
        if method == "POST" and path in CONSOLE_FORMS:
            return CONSOLE_FORMS[path]
        return CHANGING_ROUTES.get((method, getattr(matched, "path_format", "") or path))


def _describe(scope: Scope, parameters: tuple[str, ...]) -> str:
    query: Mapping[str, Any] = HTTPConnection(scope).query_params
    values = [scope.get("path_params", {}).get(name) or query.get(name) for name in parameters]
    return " ".join(str(one) for one in values if one)
