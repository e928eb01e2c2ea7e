"""Assemble: the bundle of the selected passages, within the token budget (spec §5.7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from config.errors import UsageError
from graph.records import Link
from skills.bundle.markdown import (
    render_header,
    render_markdown,
    render_passage,
    render_skill,
    summarise_withheld,
)
from skills.bundle.model import Bundle, BundlePassage, BundleSkill, LeftOutSkill
from skills.bundle.token_budget import BudgetItem, allocate_tokens
from skills.events import QueryFilters
from skills.record import ParsedSkill, Role
from skills.token_count import count_tokens
from tasks.query.bundle_parts import (
    MAX_LEAD_IN_TOKENS,
    build_bundle_link,
    build_bundle_skill,
    collect_withheld,
    estimate_bundle,
    list_left_out,
    round_probability,
    select_links,
    summarise_unsent,
)
from tasks.query.context import QueryContext
from tasks.query.read_chosen import ChosenRevisions
from tasks.query.select_passages import SkillPassages

_LEFT_OUT_LINE_TOKENS = 30
"""About what a skill costs that is only named as left out."""

_EXTRA_ROUNDS = 4
_LEAST_WORTH = 1e-6


def assemble(
    context: QueryContext, chosen: ChosenRevisions, selected: Sequence[SkillPassages]
) -> Bundle:
    """The bundle of a hit: what fits of the selected passages.

    Raises UsageError if not even the best skill with one passage fits into the budget.
    """
    withheld, warning = collect_withheld(context, chosen.ranking, chosen.choice)
    bundle = Bundle(
        query_id=context.query_id,
        status="SKILL_HIT",
        warning=warning,
        task=context.request.task,
        budget=context.budget,
        probability=estimate_bundle(chosen.ranking, [skill.chosen for skill in selected]),
        withheld=withheld,
    )
    links = select_links(context, selected)
    return fill_bundle(bundle, selected, links, list_left_out(context, chosen.choice))


def assemble_no_hit(context: QueryContext, chosen: ChosenRevisions) -> Bundle:
    """The bundle without a skill, and the reason why there is none."""
    withheld, warning = collect_withheld(context, chosen.ranking, chosen.choice)
    if withheld.count:
        reason = f"nothing about the task may be sent: {summarise_withheld(withheld)}"
    elif not context.services.library.latest.pointers:
        reason = "the library holds no skill yet"
    elif not chosen.ranking.hits and context.request.filters != QueryFilters():
        reason = "no skill that passes the filters shares anything with the task"
    else:
        reason = "nothing in the library is evidently about the task"
    return Bundle(
        query_id=context.query_id,
        status="NO_SKILL_HIT",
        reason=reason,
        probability=round_probability(chosen.ranking.probability),
        warning=warning,
        task=context.request.task,
        budget=context.budget,
        withheld=withheld,
    )


def fill_bundle(
    bundle: Bundle,
    skills: Sequence[SkillPassages],
    links: Iterable[Link],
    left_out: Sequence[LeftOutSkill],
) -> Bundle:
    """Fill a bundle so that its Markdown stays within its budget, exactly.

    Raises UsageError if not even the best skill with its shortest passage fits; the message names
    a budget that would do.
    """
    shell = bundle.model_copy(update={"left_out": tuple(left_out)})
    filler = _BundleFiller(shell, skills, tuple(links))
    # The most that the Markdown costs without any skill: all of them are named as left out.
    fixed = filler.fill([None] * len(skills)).tokens
    items = [_budget_item(filler, place) for place in range(len(skills))]
    allocated, filled = _spend_budget(filler, items, bundle.budget, fixed)
    while filled.tokens > bundle.budget or not filled.skills:
        if not _drop_least_useful(items, allocated, filled.tokens - bundle.budget):
            return _smallest_bundle(filler, items[0], bundle.budget)
        filled = filler.fill(allocated)
    return filled


def _budget_item(filler: _BundleFiller, place: int) -> BudgetItem:
    skill = filler.skills[place]
    costs = _passage_costs(skill.revision.parsed, skill.passages)
    return BudgetItem(
        count_tokens(render_header(99, filler.skill(place, ()))) + _LEFT_OUT_LINE_TOKENS,
        max(skill.chosen.worth, _LEAST_WORTH),
        [(index, costs[index]) for index in skill.passages],
        skill.enough,
        skill.sufficiency,
        skill.first,
        _find_owner(filler.skills[:place], skill.chosen.needed_by),
    )


def _find_owner(before: Sequence[SkillPassages], skill_id: str) -> int:
    """The place of the skill with this id, -1 without."""
    places = {skill.chosen.skill_id: place for place, skill in enumerate(before)}
    return places.get(skill_id, -1)


def _spend_budget(
    filler: _BundleFiller, items: Sequence[BudgetItem], budget: int, fixed: int
) -> tuple[list[list[int] | None], Bundle]:
    """The passages to send by skill, and the bundle of them: the fullest found within the budget,
    or the first if even that is above it.

    Passages that are sent together share their headings, so their costs overstate what they take
    (by a quarter over real skills): what is left over is spent again, a few times.
    """
    room = budget - fixed
    allocated = allocate_tokens(items, room)
    filled = filler.fill(allocated)
    for _ in range(_EXTRA_ROUNDS):
        room += max(budget - filled.tokens, 0)
        more = allocate_tokens(items, room)
        if more == allocated:
            break
        fuller = filler.fill(more)
        if fuller.tokens > budget:
            break
        allocated, filled = more, fuller
    return allocated, filled


def _smallest_bundle(filler: _BundleFiller, best: BudgetItem, budget: int) -> Bundle:
    """The best skill with its shortest passage; raises UsageError if even that is too much."""
    shortest = min(best.passages, key=lambda passage: (passage[1], passage[0]), default=None)
    allocated: list[list[int] | None] = [None] * len(filler.skills)
    allocated[0] = [shortest[0]] if shortest else []
    filled = filler.fill(allocated)
    if filled.tokens <= budget:
        return filled
    raise UsageError(
        f"a budget of {budget} tokens is less than one passage needs; give at least {filled.tokens}"
    )


def _passage_costs(parsed: ParsedSkill, indexes: Iterable[int]) -> dict[int, int]:
    """Tokens of passages sent alone, with heading and lead-in: at least what they take merged.

    The tags around a passage are counted once per section; rendering each passage for its cost
    would take as long as the rest of the bundle.
    """
    around: dict[int, int] = {}
    costs = {}
    for index in indexes:
        passage = parsed.passages[index]
        if passage.section not in around:
            around[passage.section] = _markup_tokens(parsed.sections[passage.section].heading_path)
        costs[index] = around[passage.section] + passage.tokens
        lead_in = parsed.passages[passage.lead_in].tokens if passage.lead_in >= 0 else 0
        if 0 < lead_in <= MAX_LEAD_IN_TOKENS:
            apart = passage.lead_in != index - 1
            costs[index] += lead_in + apart * around[passage.section]
    return costs


def _markup_tokens(path: tuple[str, ...]) -> int:
    """Tokens of a passage's tags and its heading, with the widest line numbers and role."""
    line = 10**6
    widest = max((role.value for role in Role), key=count_tokens)
    empty = BundlePassage(
        first_line=line - 1,
        last_line=line,
        heading_path=path,
        roles=(widest,),
        text=f"###### {path[-1]}" if path else "",
    )
    return count_tokens(render_passage(empty))


class _BundleFiller:
    """Builds bundles of the same skills with more or fewer passages, and caches their parts."""

    def __init__(
        self, shell: Bundle, skills: Sequence[SkillPassages], links: Sequence[Link]
    ) -> None:
        self.skills = skills
        self._shell = shell
        self._links = links
        self._sent: dict[tuple[int, tuple[int, ...]], BundleSkill] = {}
        self._tokens: dict[tuple[int, tuple[int, ...], int], int] = {}

    def skill(self, place: int, indexes: Sequence[int]) -> BundleSkill:
        """The skill at a place with these passages; its tokens are not counted."""
        key = place, tuple(indexes)
        if key not in self._sent:
            skill = self.skills[place]
            if len(indexes) == len(skill.revision.parsed.passages):
                skill = replace(skill, paged_by="whole")
            self._sent[key] = build_bundle_skill(skill, indexes)
        return self._sent[key]

    def _counted(self, place: int, indexes: Sequence[int], number: int) -> BundleSkill:
        skill, key = self.skill(place, indexes), (place, tuple(indexes), number)
        if key not in self._tokens:
            self._tokens[key] = count_tokens(render_skill(number, skill))
        return skill.model_copy(update={"tokens": self._tokens[key]})

    def fill(self, allocated: Sequence[list[int] | None]) -> Bundle:
        """The bundle with these passages of each skill; None leaves a skill out."""
        sent: list[BundleSkill] = []
        left_out = list(self._shell.left_out)
        for place, indexes in enumerate(allocated):
            if indexes is None:
                left_out.append(_leave_out_for_budget(self.skills[place]))
            else:
                sent.append(self._counted(place, indexes, len(sent) + 1))
        ids = {skill.skill_id for skill in sent}
        links = tuple(
            build_bundle_link(link)
            for link in self._links
            if link.source in ids and link.target in ids
        )
        unfit = summarise_unsent(self.skills, allocated)
        update = {
            "skills": (),
            "left_out": tuple(left_out),
            "links": links,
            "did_not_fit": unfit,
        }
        around = count_tokens(render_markdown(self._shell.model_copy(update=update)))
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


def _drop_least_useful(
    items: Sequence[BudgetItem], allocated: list[list[int] | None], excess: int
) -> bool:
    """Take back the least needed passages, of the skill of least worth first, until about `excess`
    tokens are saved; if every skill has just one left, the last skill. False if one skill with one
    passage is left."""
    dropped = False
    for place in sorted(
        range(len(items)), key=lambda place: (items[place].first, items[place].worth)
    ):
        for index, cost in reversed(items[place].passages):
            indexes = allocated[place]
            if excess > 0 and indexes is not None and index in indexes and len(indexes) > 1:
                indexes.remove(index)
                excess -= cost
                dropped = True
    sent = [place for place, indexes in enumerate(allocated) if indexes is not None]
    if not dropped and len(sent) > 1:
        allocated[sent[-1]] = None
        dropped = True
    return dropped
