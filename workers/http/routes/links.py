"""Dismissed links: links between skills that a person removed from the graph."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from graph.records import LinkKey, LinkType
from skills.events.ids import SkillId
from workers.audit.requests import note_object
from workers.http.dependencies import CurrentBackend
from workers.http.models import Reason, RequestModel, ResponseModel
from workers.library.skill_data import dismissal_data


class LinkDismissal(RequestModel):
    """A link to dismiss, with the reason. Links of an undirected type are one link both ways."""

    source: SkillId
    target: SkillId
    type: LinkType
    reason: Reason


class DismissedLinkData(ResponseModel):
    """A dismissed link. dismissed_at: RFC 3339."""

    source: str
    target: str
    type: LinkType
    reason: str
    dismissed_at: str


class DismissedLinkList(ResponseModel):
    """All dismissed links, by source, target and type."""

    links: list[DismissedLinkData]


router = APIRouter(tags=["links"])


@router.get("/v1/links/dismissed", response_model=DismissedLinkList)
def list_dismissed_links(backend: CurrentBackend) -> dict[str, Any]:
    """List the links that were dismissed, with the reasons."""
    return {"links": [dismissal_data(one) for one in backend.graph.list_dismissed_links()]}


@router.post("/v1/links/dismissed", response_model=DismissedLinkData, status_code=201)
def dismiss_link(
    backend: CurrentBackend, dismissal: LinkDismissal, request: Request
) -> dict[str, Any]:
    """Dismiss a link: it is not made again, whatever its evidence."""
    note_object(request, f"{dismissal.source} {dismissal.target} {dismissal.type.value}")
    key = LinkKey(dismissal.source, dismissal.target, dismissal.type)
    return backend.dismiss_link(key, dismissal.reason)


@router.delete("/v1/links/dismissed", status_code=204)
def restore_link(
    backend: CurrentBackend,
    source: Annotated[SkillId, Query()],
    target: Annotated[SkillId, Query()],
    type: Annotated[LinkType, Query()],
) -> None:
    """Remove a dismissal: the link is made again if it still has evidence."""
    backend.restore_link(LinkKey(source, target, type))
