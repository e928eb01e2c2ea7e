"""The protocol of a backend, through which commands, agents and the gateway use a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from config.settings import Settings
from skills.access import UNRESTRICTED, Reader
from skills.events import Event, EventData, QueryAsked
from tasks.refine.pauses import RefinePause

if TYPE_CHECKING:  # slow to import; a command that asks a running `serve` needs neither
    from graph.protocol import SkillGraph
    from graph.records import LinkKey
    from workers.library.review.decisions import ReviewDecision


EmbedMode = Literal["nothing", "skills", "sections"]
"""Vectors that a process computes: none, those of skills, or also those of sections."""

RefineMode = Literal["never", "on request", "always"]
"""Published skills that a process refines: none, those of `request_refinement`, or all."""


@dataclass(frozen=True, slots=True)
class EventStatus:
    """State of an event: `accepted`, `done` (with its outcome) or `failed` (with the reason, and
    the outcome `{"usage": True}` if the event itself was wrong)."""

    state: str
    reason: str = ""
    outcome: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """State of a query: `accepted`, `done`, `failed` or `cancelled`.

    stages: names of the stages that have started, while it is open. bundle: JSON data, once done.
    reason: of a failure.
    """

    state: str
    stages: tuple[str, ...] = ()
    bundle: dict[str, Any] | None = None
    reason: str = ""


class Backend(Protocol):
    """Client of a deployment: submits events and queries, reads skills and status.

    A context manager: work is accepted and done between enter and exit. Accepted work is kept after
    the exit. Every method may raise TransientError if the deployment does not answer.

    watches_sources: whether the deployment itself watches the directories of its sources.
    """

    settings: Settings
    watches_sources: bool

    # Cached properties, not attributes, so that an implementation may open stores on first use.
    @cached_property
    def graph(self) -> SkillGraph:
        """The catalog and its links."""
        ...

    def __enter__(self) -> Self:
        """Start."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, and release connections and stores."""
        ...

    # -- events
    def submit(self, data: EventData, origin: str) -> str:
        """Accept a new event and return its id; the event is recorded durably by then.

        origin: the program that sends it, the `source` of the event. Raises TransientError if too
        many events are open.
        """
        ...

    def accept(self, event: Event) -> str:
        """Accept an existing event or query and return the id of its job.

        An event that was accepted before is left as it is. Raises TransientError if too many events
        or queries are open.
        """
        ...

    def get_event_status(self, event_id: str) -> EventStatus:
        """Return the current state of an event; raises NotFoundError for an unknown id."""
        ...

    # -- queries
    def submit_query(
        self, request: QueryAsked, origin: str, owner: str = "", reader: Reader = UNRESTRICTED
    ) -> str:
        """Accept a query and return its id.

        owner: name of the caller's token, "" for the user of this machine. reader: limits the
        skills that the answer may hold. Raises UsageError for an invalid query, TransientError if
        too many queries are open.
        """
        ...

    def answer_query(self, request: QueryAsked, origin: str) -> dict[str, Any]:
        """Submit a query, wait for its bundle and return it as JSON data.

        Raises UsageError or PermanentError with the reason if the query is invalid or fails,
        TransientError if there is no answer within `workers.query_seconds`.
        """
        ...

    def get_query_status(self, query_id: str) -> QueryStatus:
        """Return the current state of a query; raises NotFoundError for an unknown id."""
        ...

    def cancel_query(self, query_id: str) -> None:
        """Stop work on a query at its next stage; a query that has ended is left as it is."""
        ...

    # -- access
    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        """Set the groups of a source, which may not be added yet; none: those of the settings.

        Answers that begin afterwards follow them. Raises UsageError for an invalid id or group.
        """
        ...

    # -- links
    def dismiss_link(self, key: LinkKey, reason: str) -> dict[str, Any]:
        """Dismiss a link, and return the dismissal as data.

        Raises NotFoundError if there is no such link, UsageError for an invalid reason.
        """
        ...

    def restore_link(self, key: LinkKey) -> None:
        """Remove a dismissal; raises NotFoundError if there is none."""
        ...

    # -- revisions
    def purge_skill(self, skill_id: str) -> dict[str, Any]:
        """Remove a skill and every trace of its text. Return what was removed, and why the skill
        may come back (`tasks.history.purge.purge_skill`).

        Raises UsageError while an index that a reindex replaced still holds it.
        """
        ...

    def pin_skill(self, skill_id: str, seq: int | None, reason: str) -> dict[str, Any]:
        """Pin a skill to a revision, by default the published one, and return the pin as data.

        Raises as `workers.library.pins.pin_skill` does.
        """
        ...

    def unpin_skill(self, skill_id: str) -> None:
        """Remove a pin; raises NotFoundError if there is none."""
        ...

    # -- reviews; principal: the person who decides, as the audit log names them
    def waive_findings(
        self, skill_id: str, seq: int | None, rule: str, principal: str, reason: str
    ) -> dict[str, Any]:
        """Waive the findings of a rule in a revision, by default the published one. Return the
        waiver as data. Raises as `workers.library.review.decisions.SkillReviews.waive` does."""
        ...

    def remove_waiver(self, skill_id: str, rule: str) -> None:
        """Remove the waivers of a rule; raises NotFoundError if there are none."""
        ...

    def review_skill(
        self, decision: ReviewDecision, skill_id: str, seq: int | None, principal: str, reason: str
    ) -> dict[str, Any]:
        """Carry out a decision about a skill, and return it as data. Raises as
        `workers.library.review.decisions.SkillReviews.decide` does."""
        ...

    def reopen_review(self, skill_id: str) -> None:
        """Revoke the decision about a skill; raises NotFoundError if there is none."""
        ...

    # -- refinement
    def request_refinement(self, skill_ids: Sequence[str]) -> bool:
        """Have published skills refined, the first ones if there are many. Return False if nothing
        was sent, because refine tasks run or wait, or because the deployment sends them itself.

        Raises MisconfiguredError if the deployment never refines skills."""
        ...

    def is_refining(self) -> bool:
        """Return whether refine tasks run or wait."""
        ...

    def get_refine_pause(self) -> RefinePause | None:
        """Return why refinement is paused, None if it is not."""
        ...

    # -- operation
    def get_status(self) -> dict[str, Any]:
        """Return the status of the deployment, as `skillbus status --json` prints it."""
        ...

    def get_problem(self) -> str:
        """Return why processing is stalled, "" while it is not."""
        ...

    def get_wait_reason(self) -> str:
        """Return what work waits for, "" if nothing; if the wait goes on,
        `get_problem` reports it."""
        ...

    def retry_dead_letter(self, letter_id: str) -> dict[str, Any]:
        """Send the task of a dead letter again and delete the letter; return the letter as data.

        Raises NotFoundError for an unknown id, UsageError if the letter cannot be retried.
        """
        ...

    # -- work of this process; without effect where other processes do the work
    def run_maintenance(self) -> None:
        """Run the reconciler once, if tasks run in this process."""
        return

    def wait_until_linked(self) -> None:
        """Wait until no skill awaits linking, if tasks run in this process."""
        return

    def wait_until_idle(self) -> None:
        """Wait until all accepted work is done, if tasks run in this process.

        Raises TransientError if processing is stalled.
        """
        return
