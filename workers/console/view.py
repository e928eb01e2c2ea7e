"""What the views of the console share: a request with its caller, and services of the gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Request, Response
from pydantic import BaseModel, ConfigDict

from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.console.pages import Pages, build_url, find_cursor
from workers.console.text_display import Url
from workers.http.authentication import Caller, CurrentCaller, check_scope
from workers.http.route_services import RouteServices
from workers.http.tokens import TokenScope


@dataclass(frozen=True, slots=True)
class View:
    """A request for a page or of a form."""

    request: Request
    caller: Caller
    pages: Pages
    services: RouteServices

    @property
    def backend(self) -> StoreBackend:
        """The deployment."""
        return self.services.backend

    def render(self, template: str, status_code: int = 200, **context: Any) -> Response:
        """Return the page of a template."""
        return self.pages.render(self.request, template, status_code, **context)

    def admit_change(self, scope: TokenScope, name: str) -> None:
        """Note the object of a change for the audit log; raises HTTPException (403) unless the
        caller has this scope."""
        note_object(self.request, name)
        check_scope(self.caller, scope)


async def _create_view(request: Request, caller: CurrentCaller) -> View:
    state = request.app.state
    return View(request, caller, state.pages, state.services)


CurrentView = Annotated[View, Depends(_create_view)]


class PageParameters(BaseModel):
    """Base class of the parameters of a page. path: of the page."""

    model_config = ConfigDict(frozen=True)

    path: ClassVar[str]

    def url(self, **changes: object) -> Url:
        """Return the URL of the page with changes, of a list on its first page; values that are the
        default are left out."""
        chosen = self.model_dump(mode="json", exclude={"cursor"}, exclude_defaults=True)
        return build_url(self.path, chosen | changes)

    def next_url(self, next_path: str | None) -> str:
        """Return the URL of the list's next page, "" on the last one. next_path: in the form of the
        HTTP API."""
        cursor = find_cursor(next_path)
        return self.url(cursor=cursor) if cursor else ""
