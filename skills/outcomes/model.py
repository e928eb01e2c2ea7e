"""Data classes of answered queries and reported outcomes, as stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SECONDS_PER_DAY = 86_400
MAX_TASK_CHARACTERS = 4_000
"""Characters of a task that are kept with its answer."""


class OutcomeKind(StrEnum):
    """Outcome of a skill in a task."""

    USED = "used"
    HELPED = "helped"
    FAILED = "failed"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    MISSING = "missing"

    @property
    def meaning(self) -> str:
        """The meaning in words, for schemas and explanations."""
        return _MEANINGS[self]


_MEANINGS = {
    OutcomeKind.USED: "the agent followed the skill; whether it helped is not known",
    OutcomeKind.HELPED: "the skill helped with the task; it may be one that was not in the bundle",
    OutcomeKind.FAILED: "the skill was followed and did not work",
    OutcomeKind.REJECTED: "the skill was read and not followed, for the reason given",
    OutcomeKind.SUPERSEDED: "another skill, `superseded_by`, was used in its place",
    OutcomeKind.MISSING: "no skill of the library is for this task",
}


class Reporter(StrEnum):
    """The party that judged an outcome."""

    AGENT = "agent"
    VERIFIER = "verifier"
    PERSON = "person"


class TaskResult(StrEnum):
    """Result of the task as a whole."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AnsweredSkill:
    """A skill that was chosen for a query.

    place: from 1, in the order of the bundle; skills that were not sent follow. sent: False if the
    skill did not fit into the budget. lines: ranges of sent lines, 1-based and inclusive. tokens:
    tokens of its part of the bundle.
    """

    skill_id: str
    seq: int
    place: int
    sent: bool = True
    tokens: int = 0
    lines: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LostSkill:
    """A skill that was left out of a bundle because another skill, `to`, does the same."""

    skill_id: str
    to: str


@dataclass(frozen=True, slots=True)
class AnsweredQuery:
    """An answered query with the skills of its answer.

    owner: name of the caller's token, "" for the user of this machine. session: "" without a
    session. task: the first MAX_TASK_CHARACTERS of the task. answered: seconds since the epoch.
    hit: whether the bundle holds skills. probability: that of the bundle, None if not estimated.
    resend: True if the agent had lost the earlier answers of the session. is_use: False for a query
    that only looks at an answer and is not counted as usage.
    """

    query_id: str
    owner: str
    session: str
    task: str
    answered: float
    hit: bool
    probability: float | None = None
    skills: tuple[AnsweredSkill, ...] = ()
    lost: tuple[LostSkill, ...] = ()
    resend: bool = False
    is_use: bool = True

    @property
    def day(self) -> int:
        """Days from the epoch to the answer, in UTC."""
        return to_day(self.answered)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One reported outcome.

    key: its identifier, the same for every delivery of its event. skill_id: "" for `missing`.
    owner: name of the reporter's token. reported: seconds since the epoch; the time of the event,
    clipped to the time between the query and the receipt. reason: reason of a rejection, one of
    `RejectionReason`. other: the skill that superseded this skill, or that makes it redundant or
    incompatible; "" without one. place: place of the skill in the bundle, 0 if it was not in it.
    task_result: "" if not reported.
    """

    key: str
    query_id: str
    skill_id: str
    kind: OutcomeKind
    by: Reporter
    owner: str
    reported: float
    reason: str = ""
    other: str = ""
    place: int = 0
    task_result: str = ""

    @property
    def day(self) -> int:
        """Days from the epoch to the report, in UTC."""
        return to_day(self.reported)

    @property
    def order(self) -> tuple[float, int, str]:
        """Key that sorts outcomes by the time of their report, those of one event by number."""
        # Keys of an event end in the number of the outcome: the longer of two keys is the later.
        return self.reported, len(self.key), self.key


def to_day(seconds: float) -> int:
    """Convert seconds since the epoch to days since the epoch, in UTC."""
    return int(seconds // SECONDS_PER_DAY)
