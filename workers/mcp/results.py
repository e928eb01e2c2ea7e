"""Results of the tools, within a budget of tokens.

A client shows its model either the text of a result or its structured content as JSON;
some widely used clients show only the JSON. The JSON therefore holds the text too, and
the budget counts the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from skills.bundle.markdown import READ_WITH_TOOL, render_markdown
from skills.bundle.model import Bundle
from skills.token_count import count_tokens

MIN_BUDGET = 200
MAX_BUDGET = 200_000


class Result(BaseModel):
    """Structured content; `text` is what the result shows as text too."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FoundSkill(Result):
    """A skill of the bundle. safety_level: 0 clean, 3 dangerous. uri: of its SKILL.md as a
    resource, left out where the skill is served as text only."""

    skill_id: str
    safety_level: int = Field(ge=0, le=3)
    uri: str = Field(default="", exclude_if=lambda text: not text)


class FoundSkills(Result):
    """The bundle for a task: its Markdown, and its skills, the best first.

    query_id: for report_outcome. For NO_SKILL_HIT the text says why no skill fits.
    """

    query_id: str
    status: Literal["SKILL_HIT", "NO_SKILL_HIT"]
    skills: tuple[FoundSkill, ...] = ()
    text: str


class ReportedOutcome(Result):
    """The stored outcome, as text."""

    text: str


class SkillText(Result):
    """Lines of one SKILL.md at a revision.

    next_lines: requested lines that did not fit, in the form of `lines`; "" if all fitted.
    """

    skill_id: str
    revision: int
    safety_level: int = Field(ge=0, le=3)
    next_lines: str = ""
    text: str


def count_result_tokens(result: Result) -> int:
    """Return the tokens of a result in the larger of its two forms, the JSON."""
    return count_tokens(result.model_dump_json())


def fit_to_budget(bundle: Bundle, budget: int, uris: Mapping[str, str] = {}) -> FoundSkills:
    """Return the tool result for a bundle that was requested with this budget.

    uris: of the skills that have one, by id. If the bundle has no skills and does not fit, the
    names of withheld skills are removed, then the details of the reason.
    """
    result = _build_result(bundle, uris)
    unnamed = bundle.withheld.model_copy(update={"skills": ()})
    for update in ({"withheld": unnamed, "warning": ""}, {"reason": bundle.reason.split(":")[0]}):
        if not bundle.skills and count_result_tokens(result) > budget:
            bundle = bundle.model_copy(update=update)
            result = _build_result(bundle, uris)
    return result


def _build_result(bundle: Bundle, uris: Mapping[str, str]) -> FoundSkills:
    return FoundSkills(
        query_id=bundle.query_id,
        status=bundle.status,
        skills=tuple(
            FoundSkill(
                skill_id=skill.skill_id,
                safety_level=skill.safety.level,
                uri=uris.get(skill.skill_id, ""),
            )
            for skill in bundle.skills
        ),
        text=render_markdown(bundle, READ_WITH_TOOL),
    )
