"""Builds bundles of the same skills with different passages, and counts their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from graph.records import Link
from skills.bundle.budget_form import BudgetForm
from skills.bundle.markdown import render_header, render_passage
from skills.bundle.model import Bundle, BundlePassage, BundleSkill, LeftOutSkill
from skills.bundle.token_budget import BudgetItem
from skills.headings import heading_paths_from_title
from skills.record import ParsedSkill
from skills.token_count import count_tokens
from tasks.query.bundle_parts import (
    add_lead_ins,
    build_bundle_link,
    build_bundle_skill,
    summarise_unsent,
)
from tasks.query.select_passages import MAX_LEAD_IN_TOKENS, SkillPassages

_LEFT_OUT_LINE_TOKENS = 30
"""Estimated tokens of a skill that is only named as left out."""

_MIN_WORTH = 1e-6
"""Minimum worth of a skill, since `BudgetItem` needs one above 0."""

_NOTHING_NEW = "what the task needs was sent earlier in this session"
_NOTHING_NEW_FITS = (
    "what the task needs was sent earlier in this session, or does not fit into the budget"
)


def _find_owner(before: Sequence[SkillPassages], skill_id: str) -> int:
    """Return the place of the skill with this id, -1 if it is missing."""
    places = {skill.chosen.skill_id: place for place, skill in enumerate(before)}
    return places.get(skill_id, -1)


def _passage_costs(parsed: ParsedSkill, indexes: Iterable[int]) -> dict[int, int]:
    """Return the tokens of passages sent alone, with heading and lead-in: an upper bound of their
    tokens when merged.

    The tags around a passage are counted once per section; rendering each passage for its cost
    would take as long as the rest of the bundle.
    """
    paths = heading_paths_from_title(parsed)
    around: dict[int, int] = {}
    costs = {}
    for index in indexes:
        passage = parsed.passages[index]
        if passage.section not in around:
            around[passage.section] = _markup_tokens(paths[passage.section])
        costs[index] = around[passage.section] + passage.tokens
        lead_in = parsed.passages[passage.lead_in].tokens if passage.lead_in >= 0 else 0
        if 0 < lead_in <= MAX_LEAD_IN_TOKENS:
            apart = passage.lead_in != index - 1
            costs[index] += lead_in + apart * around[passage.section]
    return costs


def _markup_tokens(path: tuple[str, ...]) -> int:
    """Return the tokens of a passage's tags and heading, with the widest line numbers."""
    line = 10**6
    empty = BundlePassage(
        first_line=line - 1,
        last_line=line,
        heading_path=path,
        roles=(),
        text=f"###### {path[-1]}" if path else "",
    )
    return count_tokens(render_passage(empty))


class BundleFiller:
    """Builds bundles of the same skills with different passages, and caches their parts.

    form: the form whose tokens are counted in `tokens` of the bundles and of their skills.
    names_left_out: whether the bundles name skills that are left out; their number is in
    `did_not_fit`. items: the skills as they take part in the allocation of the `budget`.
    """

    def __init__(
        self,
        shell: Bundle,
        skills: Sequence[SkillPassages],
        links: Sequence[Link],
        form: BudgetForm = BudgetForm.MARKDOWN,
        *,
        names_left_out: bool = True,
    ) -> None:
        self.skills = skills
        self.budget = shell.budget
        self._names_left_out = names_left_out
        self._form = form
        self._shell = shell
        self._links = links
        self._sent: dict[tuple[int, tuple[int, ...]], BundleSkill] = {}
        self._tokens: dict[tuple[int, tuple[int, ...], int], int] = {}
        self.items = [self._make_item(place) for place in range(len(skills))]

    def _make_item(self, place: int) -> BudgetItem:
        skill = self.skills[place]
        costs = _passage_costs(skill.revision.parsed, skill.passages)
        return BudgetItem(
            count_tokens(render_header(99, self._build(place, ()))) + _LEFT_OUT_LINE_TOKENS,
            max(skill.chosen.worth, _MIN_WORTH),
            [(index, costs[index]) for index in skill.passages],
            skill.enough,
            skill.sufficiency,
            skill.first,
            _find_owner(self.skills[:place], skill.chosen.needed_by),
        )

    def _build(self, place: int, indexes: Sequence[int]) -> BundleSkill:
        """Return the skill at a place with these passages; its tokens are not counted."""
        key = place, tuple(indexes)
        if key not in self._sent:
            skill = self.skills[place]
            parsed = skill.revision.parsed
            if len(add_lead_ins(parsed, indexes)) == len(parsed.passages):
                skill = replace(skill, selected_by="whole")
            self._sent[key] = build_bundle_skill(skill, indexes)
        return self._sent[key]

    def _counted(self, place: int, indexes: Sequence[int], number: int) -> BundleSkill:
        skill, key = self._build(place, indexes), (place, tuple(indexes), number)
        if key not in self._tokens:
            self._tokens[key] = self._form.count_skill(number, skill)
        return skill.model_copy(update={"tokens": self._tokens[key]})

    def fill(self, allocated: Sequence[list[int] | None]) -> Bundle:
        """Return the bundle with these passages of each skill; None leaves a skill out."""
        sent: list[BundleSkill] = []
        unsent: list[LeftOutSkill] = []
        for place, indexes in enumerate(allocated):
            skill = self.skills[place]
            if indexes is not None:
                sent.append(self._counted(place, indexes, len(sent) + 1))
            elif skill.enough or not skill.sent:  # more of it is needed
                unsent.append(_leave_out_for_budget(skill))
        ids = {skill.skill_id for skill in sent}
        links = tuple(
            build_bundle_link(link)
            for link in self._links
            if link.source in ids and link.target in ids
        )
        unfit = summarise_unsent(self.skills, allocated)
        update: dict[str, Any] = {
            "skills": (),
            "left_out": (*unsent, *self._shell.left_out) if self._names_left_out else (),
            "links": links,
            "did_not_fit": unfit,
        }
        if not sent and self._shell.already_sent:
            update["reason"] = _NOTHING_NEW_FITS if unfit else _NOTHING_NEW
        around = self._form.count_rest(self._shell.model_copy(update=update))
        tokens = around + sum(skill.tokens for skill in sent)
        return self._shell.model_copy(update=update | {"skills": tuple(sent), "tokens": tokens})


def _leave_out_for_budget(skill_passages: SkillPassages) -> LeftOutSkill:
    record = skill_passages.revision.parsed.record
    return LeftOutSkill(
        skill_id=skill_passages.revision.key.skill_id,
        name=record.name,
        reason="did not fit into the budget",
        cause="budget",
        tokens=record.tokens,
    )
