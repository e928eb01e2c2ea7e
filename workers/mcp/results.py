"""The results of the tools, within a budget of tokens.

A client shows its model either the text of a result or its structured content as JSON; some widely
used clients show only the JSON. So the JSON holds the text too, and is what the budget counts.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from config.errors import UsageError
from skills.bundle.markdown import render_markdown, render_passage, render_skill
from skills.bundle.model import Bundle, BundleSkill, DidNotFit, LeftOutSkill
from skills.token_count import count_tokens

MIN_BUDGET = 200
MAX_BUDGET = 200_000

_MARKDOWN_SHARE = 0.82
"""Share of a budget that the Markdown may take: as JSON it takes 1.12 to 1.31 times as many tokens,
mostly 1.2, measured over the example library and 189 skills of SkillsBench."""

_MAX_GROWTH = 1.35

_FIELDS_TOKENS = 45
"""Tokens of the fields of a result with one skill, without its text."""


class Result(BaseModel):
    """Structured content; `text` is the same as the result's text."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FoundSkill(Result):
    """A skill of the bundle. safety_level: 0 clean, 3 dangerous."""

    skill_id: str
    safety_level: int = Field(ge=0, le=3)


class FoundSkills(Result):
    """The bundle for a task: its Markdown, and its skills, the best first.

    query_id: for report_outcome. For NO_SKILL_HIT the text says why no skill fits.
    """

    query_id: str
    status: Literal["SKILL_HIT", "NO_SKILL_HIT"]
    skills: tuple[FoundSkill, ...] = ()
    text: str


class ReportedOutcome(Result):
    """An outcome that is stored, as text."""

    text: str


class SkillText(Result):
    """Lines of one SKILL.md at a revision.

    next_lines: those asked for that did not fit, as `lines` takes them; "" when all did.
    """

    skill_id: str
    revision: int
    safety_level: int = Field(ge=0, le=3)
    next_lines: str = ""
    text: str


def count_result_tokens(result: Result) -> int:
    """Tokens of a result in the larger of its two forms, the JSON."""
    return count_tokens(result.model_dump_json())


def markdown_budget(budget: int, *, in_session: bool = False) -> int:
    """The budget of the Markdown of a bundle whose result may take `budget`.

    in_session: so that even text that grows most as JSON fits, since whatever is taken off a bundle
    again counts as sent.
    """
    share = 1 / _MAX_GROWTH if in_session else _MARKDOWN_SHARE
    return max(1, int(budget * share) - _FIELDS_TOKENS)


def result_budget(markdown: int) -> int:
    """A budget that holds a result with one skill whose Markdown takes `markdown`."""
    return math.ceil(markdown * _MAX_GROWTH) + _FIELDS_TOKENS


def fit_to_budget(bundle: Bundle, budget: int) -> FoundSkills:
    """A bundle as a result within a budget; its last passages are removed until it fits.

    Raises UsageError, with a sufficient budget, if the best passage alone does not fit.
    """
    result = _build_result(bundle)
    while (least := count_result_tokens(result)) > budget:
        smaller = _without_last(bundle)
        if smaller is None:
            raise UsageError(
                f"a budget of {budget} tokens is less than one passage needs; give at least {least}"
            )
        bundle = smaller
        result = _build_result(bundle)
    return result


def _build_result(bundle: Bundle) -> FoundSkills:
    return FoundSkills(
        query_id=bundle.query_id,
        status=bundle.status,
        skills=tuple(
            FoundSkill(skill_id=skill.skill_id, safety_level=skill.safety.level)
            for skill in bundle.skills
        ),
        text=render_markdown(bundle),
    )


def _without_last(bundle: Bundle) -> Bundle | None:
    """The bundle without the last passage of its last skill; without that skill if it has only one;
    a bundle without skills: without the warning and the names of those withheld. None if nothing
    can be removed."""
    if not bundle.skills:
        unnamed = bundle.withheld.model_copy(update={"skills": ()})
        shorter = bundle.model_copy(update={"withheld": unnamed, "warning": ""})
        return shorter if bundle.withheld.skills or bundle.warning else None
    *others, last = bundle.skills
    if len(last.passages) > 1:
        others.append(_without_last_passage(last))
        tokens = count_tokens(render_passage(last.passages[-1]))
        removed = DidNotFit(skills=0, passages=1, tokens=tokens)
        return bundle.model_copy(
            update={"skills": tuple(others), "did_not_fit": _add(bundle.did_not_fit, removed)}
        )
    if not others:
        return None
    kept = {skill.skill_id for skill in others}
    gone = LeftOutSkill(
        skill_id=last.skill_id, name=last.name, reason="did not fit into the budget"
    )
    tokens = count_tokens(render_skill(len(bundle.skills), last))
    removed = DidNotFit(skills=1, passages=len(last.passages), tokens=tokens)
    return bundle.model_copy(
        update={
            "skills": tuple(others),
            "links": tuple(one for one in bundle.links if {one.source, one.target} <= kept),
            "left_out": (gone, *bundle.left_out),
            "did_not_fit": _add(bundle.did_not_fit, removed),
        }
    )


def _add(before: DidNotFit | None, removed: DidNotFit) -> DidNotFit:
    """What did not fit before, and what was removed since."""
    if before is None:
        return removed
    return DidNotFit(
        skills=before.skills + removed.skills,
        passages=before.passages + removed.passages,
        tokens=before.tokens + removed.tokens,
    )


def _without_last_passage(skill: BundleSkill) -> BundleSkill:
    *kept, gone = skill.passages
    left = skill.left_out
    spans = sorted((*left.lines, (gone.first_line, gone.last_line)))
    return skill.model_copy(
        update={
            "passages": tuple(kept),
            "left_out": left.model_copy(
                update={
                    "passages": left.passages + 1,
                    "tokens": left.tokens + count_tokens(gone.text),
                    "lines": tuple(spans),
                }
            ),
        }
    )
