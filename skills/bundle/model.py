"""The bundle: the answer to a query, as pydantic models of its JSON form."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class BundleModel(BaseModel):
    """Base class of the parts of a bundle."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BundlePassage(BundleModel):
    """Lines of a SKILL.md, 1-based and inclusive, unchanged.

    `heading_path` begins with the title of the skill, or with its name if it has no single title.
    `open_fence` is the line that opens the code block within which the text begins, empty if it
    begins within none; the Markdown form repeats it above the text.
    """

    first_line: int
    last_line: int
    heading_path: tuple[str, ...]
    roles: tuple[str, ...]
    text: str
    open_fence: str = ""


class LeftOutPassages(BundleModel):
    """Passages of a skill that the bundle does not contain."""

    passages: int = 0
    tokens: int = 0
    lines: tuple[tuple[int, int], ...] = ()


class SafetySummary(BundleModel):
    """The scanner's findings: level 0 is none, 3 dangerous."""

    level: int = Field(default=0, ge=0, le=3)
    reasons: tuple[str, ...] = ()


class Revision(BundleModel):
    """The revision that the text is from."""

    seq: int
    content_hash: str


class BundleSkill(BundleModel):
    """A chosen skill. `tokens` counts its part of the Markdown.

    `detail`: form of its introduction; `continued` if other passages of the skill were sent earlier
    in the session, see `already_sent`.
    """

    skill_id: str
    name: str
    description: str
    source: str
    path: str = Field(description="absolute where the source is a local directory")
    revision: Revision
    licence: str
    language: str
    score: float
    probability: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="calibrated probability that the skill is right for its task; a dependency "
        "has that of the skill that needs it; null where a language model selected the skills",
    )
    needed_by: str = Field(default="", description="the chosen skill whose dependency it is")
    why: tuple[str, ...]
    safety: SafetySummary = SafetySummary()
    passages: tuple[BundlePassage, ...] = ()
    scripts: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    further_files: int = Field(
        default=0, ge=0, description="files of its folder that are not listed"
    )
    left_out: LeftOutPassages = LeftOutPassages()
    paged_by: Literal["vectors", "words", "whole"] = Field(
        default="vectors",
        description="how passages were selected: by vectors, by words, or whole: all of them",
    )
    tokens: int = 0
    detail: Literal["full", "brief", "continued"] = "full"


class BundleLink(BundleModel):
    """A link between two chosen skills."""

    source: str
    target: str
    type: str
    weight: float
    confidence: float = Field(description="share of similar labelled links that were correct")
    evidence: str


class LeftOutSkill(BundleModel):
    """A skill that was considered but not sent, and the reason.

    `cause`: it did not fit into the `budget`, is too `improbable`, or is an `alternative` to the
    sent skill `other` or in `conflict` with it; empty for any other reason. `description` and
    `probability` are those of a candidate that the Markdown describes, since there was room.
    """

    skill_id: str
    name: str
    reason: str
    description: str = ""
    probability: float | None = Field(default=None, ge=0, le=1)
    tokens: int = 0
    cause: Literal["", "budget", "improbable", "alternative", "conflict"] = ""
    other: str = ""


class DidNotFit(BundleModel):
    """Chosen content that is not sent because the budget was spent.

    skills: chosen skills of which nothing is sent. passages: unsent passages that the task needs.
    tokens: their approximate size; a budget larger by so many would hold what the task needs.
    """

    skills: int = Field(ge=0)
    passages: int = Field(ge=0)
    tokens: int = Field(ge=0)


class AlreadySent(BundleModel):
    """A chosen skill, with the lines of this revision that were sent earlier in the session.

    `lines` are not sent again; `tokens` is their size when they were sent.
    """

    skill_id: str
    name: str
    seq: int
    lines: tuple[tuple[int, int], ...]
    tokens: int = 0


class WithheldSkill(BundleModel):
    """A skill that would have been considered but is withheld by policy, and the reason."""

    skill_id: str
    kind: Literal["safety", "licence", "source"]
    reason: str
    rank: int = Field(
        default=0, description="the place it would have by its score; 0: it is a dependency"
    )
    setting: str = Field(default="", description="the setting that would send it")


class Withheld(BundleModel):
    """Withheld skills: their number, by kind, and their ids unless a setting hides them."""

    count: int = 0
    kinds: dict[str, int] = {}
    skills: tuple[WithheldSkill, ...] = ()


class Bundle(BundleModel):
    """The answer to a query.

    `tokens` is the exact count of the Markdown form, with a skill never above `budget`. `reason`
    states why there is no skill, `warning` that the best match is withheld by policy. `degraded`
    lists the stages that were skipped or limited, with the reason. `did_not_fit` is null if
    everything that the task needs of the chosen skills is sent. `session` is the session of the
    query, `earlier` the number of its queries that were answered before. A hit without `skills`
    means that everything the task needs is in `already_sent`.
    """

    schema_id: Literal["skillbus.bundle.v1"] = "skillbus.bundle.v1"
    query_id: str
    status: Literal["SKILL_HIT", "NO_SKILL_HIT"]
    reason: str = ""
    probability: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="calibrated: that one of the skills is right for the task; without a skill, "
        "that the library has one; null where a language model selected the skills",
    )
    warning: str = ""
    task: str
    session: str = ""
    obstacle: str = ""
    earlier: int = Field(default=0, ge=0)
    brief: bool = False
    budget: int
    tokens: int = 0
    folders: dict[str, str] = Field(
        default={},
        description="the folder of each source, or its remote and the folder in it; a skill's "
        "folder is its id with this in place of the source and the colon",
    )
    skills: tuple[BundleSkill, ...] = ()
    already_sent: tuple[AlreadySent, ...] = ()
    links: tuple[BundleLink, ...] = ()
    left_out: tuple[LeftOutSkill, ...] = ()
    did_not_fit: DidNotFit | None = None
    withheld: Withheld = Withheld()
    degraded: tuple[str, ...] = ()
    timings_ms: dict[str, float] = {}
    explain: dict[str, Any] | None = None


def bundle_schema() -> str:
    """Return the JSON Schema of a bundle, as published under docs/reference."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= Bundle.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
