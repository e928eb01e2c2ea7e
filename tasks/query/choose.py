"""Choose: selection of the ranked skills for the bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from graph.links.link_rules import DECLARED_WEIGHT
from graph.records import Adjacency, LinkType
from search.protocol import FILTER_NAMES, Filters
from skills.record import RevisionKey, get_source_id
from skills.skill_policy import PolicyViolation
from tasks.query.context import QueryContext
from tasks.query.ranking import RankedSkill, Ranking, Selection

_COPY_WEIGHT = 0.75
"""Minimum weight of two alternatives that are copies of one skill; alternatives of lower weight may
differ in what a task asks for, such as the tool."""

_MAX_DEPENDENCIES = 20
_DEPENDENCY_SCORE_SHARE = 0.9
"""A declared dependency matters almost as much as the skill that needs it."""

_DEPENDENCY_WORTH_SHARE = 0.99
"""Worth of a dependency as a share of the worth of the skill that needs it: just behind that skill,
before any other skill of less worth."""

_SCORE_POWER = 4
"""Exponent of the score as a share of the best, where it stands in for an unknown probability."""

_MIN_BEST_SCORE = 1e-6
"""Minimum of the best score, of which the scores of selected skills are shares."""

_LISTED_REJECTIONS = 10
_MAX_IN_USE = 5
"""Maximum skills of a session, the latest ones, whose error handling is considered for an
obstacle."""


@dataclass(frozen=True, slots=True)
class ChosenSkill:
    """A skill of the bundle with its reasons.

    needed_by: the skill that declares it a dependency, "" if it was chosen for its rank.
    probability: that the skill is right for the task, for a dependency that the skill that needs it
    is right; None if it was not estimated or the language model selected the skills. worth:
    expected worth of a token of the skill, by which the budget is spent; 1 for the best, 0 for
    skills that are sent last.
    """

    skill_id: str
    score: float
    why: tuple[str, ...]
    needed_by: str = ""
    probability: float | None = None
    worth: float = 1.0


class LeftOut(NamedTuple):
    """A skill that was considered and not chosen.

    cause: `alternative` or `conflict`, to or with the chosen skill `other`; "" for any other cause.
    """

    skill_id: str
    reason: str
    cause: Literal["", "alternative", "conflict"] = ""
    other: str = ""


@dataclass(slots=True)
class SkillChoice:
    """Chosen skills, best first, and the considered skills that were left out, with the reason.

    withheld: declared dependencies that the policy withholds. min_score: the score below which
    nothing is considered.
    """

    chosen: list[ChosenSkill] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    withheld: dict[str, PolicyViolation] = field(default_factory=dict)
    min_score: float = 0.0

    def chosen_ids(self) -> set[str]:
        """Return the ids of the chosen skills."""
        return {chosen.skill_id for chosen in self.chosen}


def is_evident(context: QueryContext, ranking: Ranking) -> bool:
    """Return whether there is enough evidence to answer with ranked skills."""
    if not ranking.hits:
        return False
    least = context.services.settings.choice.least_probability
    known = ranking.probability
    return not context.is_on("floor") or known is None or known >= least


def choose(context: QueryContext, ranking: Ranking) -> SkillChoice:
    """Choose skills from the ranking: best first, each with its declared dependencies, one of a
    group of alternatives, never two in conflict, no skill that is unlikely or far below the best.

    The owner of a format that the task names may score any distance below the best. If the language
    model selected skills, only these are considered. Without enough evidence, only skills in use
    are chosen.
    """
    refused = context.session.refused
    choice = SkillChoice(left_out=[LeftOut(name, refused[name]) for name in ranking.refused])
    hits = ranking.hits
    if not is_evident(context, ranking):
        choice.chosen += _list_in_use(context, choice, ranking)
        return choice
    top, selection = context.top, ranking.selection
    if selection is None:
        settings = context.services.settings.choice
        choice.min_score = settings.relative * hits[0].score
        considered = _complete_probabilities(hits[: 2 * top])
        shortlist = _make_shortlist(considered, choice.min_score, settings.least_further)
    else:
        min_share = context.services.settings.choice.relative
        shortlist = _list_selected(hits, selection, choice, min_share)
    scores = {hit.key.skill_id: hit.score for hit in shortlist}
    rows = _read_rows(context, list(scores))
    folded: dict[str, str] = {}
    for hit in shortlist:
        if sum(not one.needed_by for one in choice.chosen) >= top:
            break
        skill_id, taken = hit.key.skill_id, choice.chosen_ids()
        if skill_id in taken:
            continue
        found = _find_conflict(skill_id, rows, ranking.conflicts, taken)
        if found is None and (selection is None or skill_id not in selection.needed):
            better = _find_better_alternative(rows.get(skill_id), taken, folded)
            if better:
                folded[skill_id] = better
                reason = f"alternative to {better}, which ranks better"
                found = LeftOut(skill_id, reason, "alternative", better)
        if found is not None:
            choice.left_out.append(found)
            continue
        probability = hit.probability if selection is None else None
        choice.chosen.append(ChosenSkill(skill_id, hit.score, hit.why, probability=probability))
        _add_dependencies(context, choice, skill_id, scores, rows, ranking.conflicts)
    choice.chosen = _weigh(choice.chosen)
    choice.chosen += _list_in_use(context, choice, ranking)
    choice.left_out = _first_reasons(choice)
    return choice


def _list_in_use(
    context: QueryContext, choice: SkillChoice, ranking: Ranking
) -> Iterator[ChosenSkill]:
    """Yield, for an obstacle, the last skills that the agent worked with, unless they were chosen
    or may not be sent: they may say what to do about it."""
    if not context.obstacle or context.filters != Filters():
        return
    taken = choice.chosen_ids()
    keys = context.services.library.latest.get_keys(
        [name for name in context.session.in_use[:_MAX_IN_USE] if name not in taken]
    )
    violations = context.policy_filter.find_violations(keys)
    rows = _read_rows(context, [key.skill_id for key in keys])
    for key in keys:
        name = key.skill_id
        conflict = _find_conflict(name, rows, ranking.conflicts, taken)
        if name not in violations and conflict is None:
            taken.add(name)
            yield ChosenSkill(name, 0.0, ("in use in this session",), worth=0.0)


def _read_rows(context: QueryContext, skill_ids: Sequence[str]) -> dict[str, Adjacency]:
    services = context.services
    return dict(services.graph.get_adjacency(skill_ids, services.settings.diffusion.fan_out))


def _first_reasons(choice: SkillChoice) -> list[LeftOut]:
    """Return each left-out skill with its first reason, without skills that were chosen later."""
    taken = choice.chosen_ids()
    reasons: dict[str, LeftOut] = {}
    for left in choice.left_out:
        if left.skill_id not in taken:
            reasons.setdefault(left.skill_id, left)
    return list(reasons.values())


def _complete_probabilities(hits: Sequence[RankedSkill]) -> list[RankedSkill]:
    """Return the hits, with the lowest estimated probability for hits without one: it is estimated
    for the first candidates only. Without any estimate they are unchanged."""
    lowest = min((hit.probability for hit in hits if hit.probability is not None), default=None)
    return [replace(hit, probability=lowest) if hit.probability is None else hit for hit in hits]


def _make_shortlist(
    hits: Sequence[RankedSkill], min_score: float, min_probability: float
) -> list[RankedSkill]:
    """Return the first hit, and later hits that are likely enough or own a named format."""

    def is_likely(hit: RankedSkill) -> bool:
        is_probable = hit.probability is None or hit.probability >= min_probability
        return hit.score >= min_score and is_probable

    return [
        hit
        for place, hit in enumerate(hits)
        if hit.score > 0 and (place == 0 or hit.named_format or is_likely(hit))
    ]


def _weigh(chosen: Sequence[ChosenSkill]) -> list[ChosenSkill]:
    """Return the chosen skills with their worth: the probability as a share of the best one's, or
    without probabilities the fourth power of the score as a share of the best score. Over 230
    prompts among 12,000 skills the share of right skills falls about like that power.

    A dependency has about the worth of the skill that needs it, regardless of its own rank, so
    that the budget goes to it before any skill behind that one.
    """
    best = max((one.probability or 0.0 for one in chosen), default=0.0)
    top = max((one.score for one in chosen), default=0.0)
    worth: dict[str, float] = {}
    for one in chosen:
        if one.probability is None or best <= 0:
            own = (max(one.score, 0.0) / max(top, 1e-9)) ** _SCORE_POWER
        else:
            own = one.probability / best
        needed = worth.get(one.needed_by, 0.0) * _DEPENDENCY_WORTH_SHARE
        worth[one.skill_id] = max(own, needed)
    return [replace(one, worth=worth[one.skill_id]) for one in chosen]


def _list_selected(
    hits: Sequence[RankedSkill], selection: Selection, choice: SkillChoice, min_share: float
) -> list[RankedSkill]:
    """Return the needed skills with the best score, so that they get the budget first, then the
    useful ones with a share of that score, at least `min_share`. Other skills are left out with the
    model's reason."""
    by_id = {hit.key.skill_id: hit for hit in hits}
    best = max(hits[0].score, _MIN_BEST_SCORE)
    walked = dict.fromkeys(selection.needed, 1.0)
    walked |= {name: share for name, share in selection.useful.items() if share >= min_share}
    rejected = [
        LeftOut(name, reason) for name, reason in selection.rejected.items() if name in by_id
    ]
    choice.left_out += rejected[:_LISTED_REJECTIONS]
    return [
        replace(by_id[name], score=share * best) for name, share in walked.items() if name in by_id
    ]


def _find_conflict(
    skill_id: str,
    rows: Mapping[str, Adjacency],
    conflicts: Sequence[tuple[str, str]],
    taken: set[str],
) -> LeftOut | None:
    """Return why a skill cannot join the chosen ones, None if it can.

    rows: links by skill; a skill with too many links may not list all of them. conflicts: further
    pairs, of this query only.
    """
    for pair in conflicts:
        other = pair[1] if pair[0] == skill_id else pair[0]
        if skill_id in pair and other in taken:
            reason = f"conflicts with {other} in this task"
            return LeftOut(skill_id, reason, "conflict", other)
    listed = [other for other in _list_conflicts(rows, skill_id) if other in taken]
    listed += [other for other in sorted(taken) if skill_id in _list_conflicts(rows, other)]
    if listed:
        return LeftOut(skill_id, f"conflicts with {listed[0]}", "conflict", listed[0])
    return None


def _list_conflicts(rows: Mapping[str, Adjacency], skill_id: str) -> list[str]:
    """Return the skills that a skill conflicts with, by weight."""
    row = rows.get(skill_id)
    return [
        neighbour.skill_id
        for neighbour in (row.neighbours if row else ())
        if neighbour.type is LinkType.CONFLICT
    ]


def _find_better_alternative(
    row: Adjacency | None, taken: set[str], folded: Mapping[str, str]
) -> str:
    """Return the chosen skill that a skill is an alternative to, "" if there is none.

    Alternatives that were left out for a chosen skill count too, since a skill keeps links to a
    limited number of its copies.
    """
    for neighbour in row.neighbours if row else ():
        if neighbour.type is LinkType.ALTERNATIVE and neighbour.weight >= _COPY_WEIGHT:
            if neighbour.skill_id in taken:
                return neighbour.skill_id
            if neighbour.skill_id in folded:
                return folded[neighbour.skill_id]
    return ""


def _add_dependencies(
    context: QueryContext,
    choice: SkillChoice,
    skill_id: str,
    scores: Mapping[str, float],
    rows: dict[str, Adjacency],
    conflicts: Sequence[tuple[str, str]],
) -> None:
    """Add the declared dependencies of a skill, transitively, right behind it.

    scores: of the shortlist, by skill_id. rows: links read so far; extended.
    """
    score = scores[skill_id] * _DEPENDENCY_SCORE_SHARE
    probability = choice.chosen[-1].probability
    frontier, seen = [skill_id], {skill_id}
    while frontier:
        excluded = _read_dependencies(context, choice, frontier, rows)
        following: list[str] = []
        for owner in frontier:
            for needed in _declared_dependencies(rows.get(owner)):
                if needed in seen or needed in choice.withheld:
                    continue
                seen.add(needed)
                taken = choice.chosen_ids()
                if needed in excluded:
                    reason = f"declared dependency of {owner}, but {excluded[needed]}"
                    choice.left_out.append(LeftOut(needed, reason))
                    continue
                if len(seen) > 1 + _MAX_DEPENDENCIES:  # the skill itself is among them
                    reason = f"declared dependency of {owner}, beyond the first {_MAX_DEPENDENCIES}"
                    choice.left_out.append(LeftOut(needed, reason))
                    continue
                if needed in taken:
                    continue
                conflict = _find_conflict(needed, rows, conflicts, taken)
                if conflict is not None:
                    reason = f"declared dependency of {owner}, but {conflict.reason}"
                    choice.left_out.append(conflict._replace(reason=reason))
                    continue
                following.append(needed)
                reasons = (f"declared dependency of {owner}",)
                own = max(scores.get(needed, 0.0), score)
                choice.chosen.append(ChosenSkill(needed, own, reasons, owner, probability))
        frontier = following


def _read_dependencies(
    context: QueryContext,
    choice: SkillChoice,
    owners: Sequence[str],
    rows: dict[str, Adjacency],
) -> Mapping[str, str]:
    """Read the links of the declared dependencies of these skills, and record which are withheld.

    Returns the skills that the session or the filters exclude, with the reason.
    """
    declared = {name: owner for owner in owners for name in _declared_dependencies(rows.get(owner))}
    unread = sorted(declared.keys() - rows.keys())
    if unread:
        rows |= _read_rows(context, unread)
    keys = context.services.library.latest.get_keys(sorted(declared))
    for name, violation in context.policy_filter.find_violations(keys).items():
        reason = f"declared dependency of {declared[name]}; {violation.reason}"
        choice.withheld.setdefault(name, PolicyViolation(violation.kind, reason, violation.setting))
    filtered = dict.fromkeys(_list_filtered(context, keys), "the filters leave it out")
    return filtered | dict(context.session.refused)


def _list_filtered(context: QueryContext, keys: Sequence[RevisionKey]) -> list[str]:
    """Return the skills that do not pass the filters of the request. Filters by source alone need
    no revisions, which cannot be read while the index does not answer."""
    wanted = context.filters
    if wanted == Filters(source=wanted.source):
        sources = wanted.source
        return [one for one, _ in keys if sources and get_source_id(one) not in sources]
    found = context.services.index.get_revisions(keys) if keys else {}
    return [key.skill_id for key, one in found.items() if not _passes(one.filters, wanted)]


def _passes(filters: Filters, wanted: Filters) -> bool:
    """Return whether a revision with these values has one of the wanted values of each filter."""
    pairs = ((getattr(wanted, name), getattr(filters, name)) for name in FILTER_NAMES)
    return all(not values or not set(values).isdisjoint(own) for values, own in pairs)


def _declared_dependencies(row: Adjacency | None) -> list[str]:
    return [
        neighbour.skill_id
        for neighbour in (row.neighbours if row else ())
        if neighbour.type is LinkType.DEPENDENCY
        and neighbour.forward
        and neighbour.weight >= DECLARED_WEIGHT
    ]
