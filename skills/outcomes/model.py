"""Answered queries and reported outcomes, as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SECONDS_PER_DAY = 86_400
MAX_TASK_CHARACTERS = 4_000
"""Characters of a task that are kept with its answer."""


class OutcomeKind(StrEnum):
    """What came of a skill in a task."""

    USED = "used"
    HELPED = "helped"
    FAILED = "failed"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    MISSING = "missing"

    @property
    def meaning(self) -> str:
        """What it says, in words for schemas and explanations."""
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
    """How the task as a whole ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AnsweredSkill:
    """A skill that was chosen for a query.

    place: from 1, by its order in the bundle; further ones follow those that were sent. sent:
    False if it did not fit into the budget. lines: the ranges of lines that were sent, 1-based and
    inclusive. tokens: of its part of the bundle.
    """

    skill_id: str
    seq: int
    place: int
    sent: bool = True
    tokens: int = 0
    lines: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LostSkill:
    """A skill that was left out of a bundle for one that does the same, `to`."""

    skill_id: str
    to: str


@dataclass(frozen=True, slots=True)
class AnsweredQuery:
    """A query that was answered, and with which skills.

    owner: name of the token that asked, "" for the user of this machine. session: "" without.
    task: its first MAX_TASK_CHARACTERS. answered: seconds since the epoch. hit: whether the bundle
    holds skills. probability: of the bundle, None where none was estimated. resend: the agent had
    lost what the session had sent before. is_use: False for a look at an answer, which usage does
    not count.
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
        """Days from the epoch to its answer, in UTC."""
        return to_day(self.answered)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One reported outcome.

    key: identifies it, the same for every delivery of its event. skill_id: "" for `missing`. owner:
    name of the token that reported it. reported: seconds since the epoch, by the event, but not
    before its query was asked or after its receipt. reason: of a rejection, one of
    `RejectionReason`. other: the skill that superseded this one, or with which it is incompatible
    or redundant; "" without. place: of the skill in the bundle, 0 if it was not in it. task_result:
    "" where it was not reported.
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


def to_day(seconds: float) -> int:
    """Days from the epoch, in UTC, of a time in seconds."""
    return int(seconds // SECONDS_PER_DAY)
