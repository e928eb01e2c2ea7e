"""Builds bundles of the same skills with different passages, and counts their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graph.records import Link
from skills.bundle.budget_form import BudgetForm
from skills.bundle.markdown import render_header
from skills.bundle.model import Bundle, BundleSkill, DidNotFit, LeftOutSkill
from skills.bundle.token_budget import BudgetItem
from skills.passages import find_short_lists
from skills.token_count import count_tokens
from tasks.query.bundle_parts import build_bundle_link
from tasks.query.filling.bundle_skill import BundleSkillBuilder, add_lead_ins
from tasks.query.select_passages import MAX_LIST_TOKENS, SkillPassages

_LEFT_OUT_LINE_TOKENS = 30
"""Estimated tokens of a skill that is only named as left out."""

_MIN_WORTH = 1e-6
"""Minimum worth of a skill, since `BudgetItem` needs one above 0."""

_MARKUP = 1.1
"""Ratio of the tokens of sent passages with their tags to the tokens of their text."""

_HEADER_TOKENS = 100
"""Estimated tokens of the header of a skill."""

_NOTHING_NEW = "what the task needs was sent earlier in this session"
_NOTHING_NEW_FITS = (
    "what the task needs was sent earlier in this session, or does not fit into the budget"
)


def _find_owner(before: Sequence[SkillPassages], skill_id: str) -> int:
    """Return the place of the skill with this id, -1 if it is missing."""
    places = {skill.chosen.skill_id: place for place, skill in enumerate(before)}
    return places.get(skill_id, -1)


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
        self._builders = list(map(BundleSkillBuilder, skills))
        self._tokens: dict[tuple[int, tuple[int, ...], int], int] = {}
        self.items = [self._make_item(place) for place in range(len(skills))]

    def _make_item(self, place: int) -> BudgetItem:
        skill, builder = self.skills[place], self._builders[place]
        return BudgetItem(
            count_tokens(render_header(99, builder.header)) + _LEFT_OUT_LINE_TOKENS,
            max(skill.chosen.worth, _MIN_WORTH),
            builder.list_costs(),
            skill.enough,
            skill.sufficiency,
            skill.first,
            _find_owner(self.skills[:place], skill.chosen.needed_by),
            find_short_lists(skill.revision.parsed.passages, MAX_LIST_TOKENS),
        )

    def _counted(self, place: int, indexes: Sequence[int], number: int) -> BundleSkill:
        skill, key = self._builders[place].build(indexes), (place, tuple(indexes), number)
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
        unfit = _summarise_unsent(self.skills, allocated)
        update: dict[str, Any] = {
            "skills": tuple(sent),
            "left_out": (*unsent, *self._shell.left_out) if self._names_left_out else (),
            "links": links,
            "did_not_fit": unfit,
        }
        if not sent and self._shell.already_sent:
            update["reason"] = _NOTHING_NEW_FITS if unfit else _NOTHING_NEW
        bundle = self._shell.model_copy(update=update)
        tokens = self._form.count_rest(bundle) + sum(skill.tokens for skill in sent)
        return bundle.model_copy(update={"tokens": tokens})


def _leave_out_for_budget(skill_passages: SkillPassages) -> LeftOutSkill:
    record = skill_passages.revision.parsed.record
    return LeftOutSkill(
        skill_id=skill_passages.revision.key.skill_id,
        name=record.name,
        reason="did not fit into the budget",
        cause="budget",
        tokens=record.tokens,
    )


def _summarise_unsent(
    selected: Sequence[SkillPassages], allocated: Sequence[Sequence[int] | None]
) -> DidNotFit | None:
    """Return a summary of the needed passages of the chosen skills that are not allocated; None if
    nothing is missing.

    allocated: passage indexes by skill, None for a skill that is not sent. Tags and headers of
    missing passages are estimated.
    """
    skills = passages = tokens = 0
    for skill, indexes in zip(selected, allocated, strict=True):
        sent = add_lead_ins(skill.revision.parsed, indexes or ())
        missing = [index for index in skill.passages[: skill.enough] if index not in sent]
        skills += indexes is None and not skill.sent
        passages += len(missing)
        tokens += sum(skill.revision.parsed.passages[index].tokens for index in missing)
    if not skills and not passages:
        return None
    more = round(tokens * _MARKUP) + skills * _HEADER_TOKENS
    return DidNotFit(skills=skills, passages=passages, tokens=more)
