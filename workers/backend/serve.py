"""The backend that uses a running `serve`: a client of the socket in its home."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from typing_extensions import override

from config.errors import MisconfiguredError, NotFoundError, UsageError
from config.settings import Settings
from skills.access import UNRESTRICTED, Reader
from skills.events import Event, EventData, QueryAsked, new_event
from tasks.refine.pauses import RefinePause
from workers.backend.protocol import Backend, EventStatus, QueryStatus
from workers.backend.serve_client import ServeClient

if TYPE_CHECKING:  # slow to import; queries need neither
    from graph.protocol import SkillGraph
    from graph.records import LinkKey
    from workers.library.review.decisions import ReviewDecision

_PURGE_SECONDS = 3_600.0
"""Time limit of a purge, which rewrites the files of the library."""


class ServeBackend(Backend):
    """Sends all calls to a running `serve`; opens catalog and index for reading on first use."""

    watches_sources = True

    def __init__(self, settings: Settings, client: ServeClient) -> None:
        self.settings = settings
        self._client = client
        self._stack = ExitStack()
        self._stack.callback(client.close)

    @override
    def __enter__(self) -> Self:
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the stores."""
        self._stack.close()

    def is_alive(self) -> bool:
        """Return whether `serve` still answers."""
        return self._client.is_alive()

    @cached_property
    @override
    def graph(self) -> SkillGraph:
        from workers.backend.stores import open_graph  # slow to import

        return open_graph(self.settings, self._stack, writable=False)

    @override
    def submit(self, data: EventData, origin: str) -> str:
        return self.accept(new_event(data, origin))

    @override
    def accept(self, event: Event) -> str:
        accepted = self._client.post("/v1/events", event.model_dump(mode="json"))
        return str(accepted["id"])

    @override
    def get_event_status(self, event_id: str) -> EventStatus:
        data = self._client.get(f"/v1/events/{event_id}")
        return EventStatus(data["state"], data["reason"], data["outcome"] or {})

    @override
    def submit_query(
        self, request: QueryAsked, origin: str, owner: str = "", reader: Reader = UNRESTRICTED
    ) -> str:
        """Accept a query; on the socket every query belongs to the user of this machine."""
        del origin, owner, reader
        accepted = self._client.post("/v1/queries", request.model_dump(mode="json"))
        return str(accepted["id"])

    @override
    def answer_query(self, request: QueryAsked, origin: str) -> dict[str, Any]:
        del origin
        return dict(self._client.post("/v1/answers", request.model_dump(mode="json")))

    @override
    def get_query_status(self, query_id: str) -> QueryStatus:
        data = self._client.get(f"/v1/queries/{query_id}")
        return QueryStatus(
            data["state"],
            tuple(data.get("stages") or ()),
            data.get("bundle"),
            data.get("reason") or "",
        )

    @override
    def cancel_query(self, query_id: str) -> None:
        try:
            self._client.delete(f"/v1/queries/{query_id}")
        except NotFoundError:  # ended, and deleted from the journal since
            return

    @override
    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        self._client.put(f"/v1/sources/{quote(source_id)}/groups", {"groups": list(groups)})

    @override
    def dismiss_link(self, key: LinkKey, reason: str) -> dict[str, Any]:
        return dict(self._client.post("/v1/links/dismissed", _link_data(key) | {"reason": reason}))

    @override
    def restore_link(self, key: LinkKey) -> None:
        self._client.delete(f"/v1/links/dismissed?{urlencode(_link_data(key))}")

    @override
    def purge_skill(self, skill_id: str) -> dict[str, Any]:
        path = f"/v1/skills/{quote(skill_id)}/revisions"
        if self.graph.get_entries([other := f"{skill_id}/revisions"]):
            raise UsageError(
                f"{other!r} is a skill, which a request to skillbus serve would remove; stop it, "
                f"and purge {skill_id!r} then"
            )
        return dict(self._client.delete(path, seconds=_PURGE_SECONDS))

    @override
    def pin_skill(self, skill_id: str, seq: int | None, reason: str) -> dict[str, Any]:
        body = {"skill_id": skill_id, "seq": seq, "reason": reason}
        return dict(self._client.post("/v1/pins", body))

    @override
    def unpin_skill(self, skill_id: str) -> None:
        self._client.delete(f"/v1/pins/{quote(skill_id)}")

    @override
    def waive_findings(
        self, skill_id: str, seq: int | None, rule: str, principal: str, reason: str
    ) -> dict[str, Any]:
        """Waive findings; on the socket the decision is that of the user of this machine."""
        del principal
        body = {"skill_id": skill_id, "seq": seq, "rule": rule, "reason": reason}
        return dict(self._client.post("/v1/waivers", body))

    @override
    def remove_waiver(self, skill_id: str, rule: str) -> None:
        self._client.delete(f"/v1/waivers?{urlencode({'skill_id': skill_id, 'rule': rule})}")

    @override
    def review_skill(
        self, decision: ReviewDecision, skill_id: str, seq: int | None, principal: str, reason: str
    ) -> dict[str, Any]:
        """Carry out a decision; on the socket the decision is that of the user of this machine."""
        del principal
        body = {"decision": decision.value, "skill_id": skill_id, "seq": seq, "reason": reason}
        return dict(self._client.post("/v1/review", body))

    @override
    def reopen_review(self, skill_id: str) -> None:
        self._client.delete(f"/v1/review/{quote(skill_id)}")

    @override
    def request_refinement(self, skill_ids: Sequence[str]) -> bool:
        """Return False: `serve` refines all published skills by itself.

        Raises MisconfiguredError if `serve` was started without the model or the stages of the
        settings here, and so never does.
        """
        del skill_ids
        wanted = self.settings.language_model
        served = self.get_status().get("language_model") or {}
        missing = set(wanted.offline_stages).difference(served.get("stages", ()))
        if served.get("model") != wanted.model or missing:
            raise MisconfiguredError(
                f"the running `skillbus serve` does not refine with {wanted.model} and "
                f"{', '.join(wanted.offline_stages)}: it was started with other settings of "
                "language_model; restart it"
            )
        return False

    @override
    def is_refining(self) -> bool:
        served = self.get_status().get("language_model") or {}
        return bool((served.get("refinement") or {}).get("running"))

    @override
    def get_refine_pause(self) -> RefinePause | None:
        served = self.get_status().get("language_model") or {}
        pause = (served.get("refinement") or {}).get("paused")
        if not pause or served.get("model") != self.settings.language_model.model:
            return None  # with another model, `request_refinement` says what to do
        return RefinePause(pause["cause"], pause["reason"])

    @override
    def get_status(self) -> dict[str, Any]:
        return dict(self._client.get("/v1/status"))

    @override
    def get_problem(self) -> str:
        return str(self.get_status()["problem"])

    @override
    def get_wait_reason(self) -> str:
        return ""

    @override
    def retry_dead_letter(self, letter_id: str) -> dict[str, Any]:
        return dict(self._client.post(f"/v1/letters/{quote(letter_id)}/retry", {}))


def _link_data(key: LinkKey) -> dict[str, str]:
    return {"source": key.source, "target": key.target, "type": key.type.value}
