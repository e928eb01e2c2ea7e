"""Replies of skillbus: answers to queries, and results of changes, outcomes and messages."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from skills.bundle.model import Bundle, Revision

QUERY_ANSWERED = "skillbus.query.answered.v1"
QUERY_FAILED = "skillbus.query.failed.v1"
SKILL_PUBLISHED = "skillbus.skill.published.v1"
SKILL_FAILED = "skillbus.skill.failed.v1"
OUTCOME_RECORDED = "skillbus.outcome.recorded.v1"
OUTCOME_REFUSED = "skillbus.outcome.refused.v1"
MESSAGE_REFUSED = "skillbus.message.refused.v1"


class QueryAnswered(Bundle):
    """A query was answered: the data is the bundle."""


class QueryFailed(BaseModel):
    """A query failed, and why."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    query_id: str
    reason: str


class SkillPublished(BaseModel):
    """A skill is searchable as of this revision.

    `warnings` counts the defects in its SKILL.md; `safety_level` is the scanner's, 0 to 3.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    skill_id: str
    revision: Revision
    name: str = ""
    warnings: int = Field(default=0, ge=0)
    safety_level: int = Field(default=0, ge=0, le=3)


class SkillFailed(BaseModel):
    """A skill could not be published, and why; an earlier revision of it is withdrawn."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    skill_id: str
    reason: str


class OutcomesRecorded(BaseModel):
    """Reported outcomes are stored. `outcomes` is their number, including those stored before."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    query_id: str
    outcomes: int = Field(ge=0)


class OutcomesRefused(BaseModel):
    """Reported outcomes were not stored, and why."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    query_id: str
    reason: str


class MessageRefused(BaseModel):
    """A message was not accepted, and why; it is kept as the dead letter `letter_id`.

    `message_id` is the `id` of the message, "" if it could not be parsed.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    reason: str
    letter_id: str = ""
    message_id: str = ""


Reply = (
    QueryAnswered
    | QueryFailed
    | SkillPublished
    | SkillFailed
    | OutcomesRecorded
    | OutcomesRefused
    | MessageRefused
)

REPLIES: dict[str, type[Reply]] = {
    QUERY_ANSWERED: QueryAnswered,
    QUERY_FAILED: QueryFailed,
    SKILL_PUBLISHED: SkillPublished,
    SKILL_FAILED: SkillFailed,
    OUTCOME_RECORDED: OutcomesRecorded,
    OUTCOME_REFUSED: OutcomesRefused,
    MESSAGE_REFUSED: MessageRefused,
}
"""Event type of a reply -> model of its data."""
