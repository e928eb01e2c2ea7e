"""Functions that read the text of the chosen skills, with a last check of the policy on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from config.errors import TransientError
from search.protocol import StoredRevision
from skills.record import RevisionKey
from tasks.query.choose import ChosenSkill, SkillChoice, choose
from tasks.query.context import QueryContext
from tasks.query.degradation import fallback_revisions
from tasks.query.ranking import Ranking

_POLICY_ROUNDS = 3
_READ_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ChosenRevisions:
    """A choice with its revisions by skill_id, and the ranking behind it.

    A chosen skill without a revision was removed meanwhile, or may not be sent.
    """

    ranking: Ranking
    choice: SkillChoice = field(default_factory=SkillChoice)
    revisions: dict[str, StoredRevision] = field(default_factory=dict)


def read_chosen(context: QueryContext, ranking: Ranking, choice: SkillChoice) -> ChosenRevisions:
    """Read the chosen skills; if a revision itself may not be sent, choose again without it, so
    that the next best skill takes its place.

    That happens if a skill changed since it was ranked, if the catalog does not answer, or if an
    older scanner read it. After 3 rounds, withheld skills are no longer replaced.
    """
    policy_filter = context.policy_filter
    for round_ in range(_POLICY_ROUNDS):
        revisions = _read_or_fall_back(context, choice.chosen)
        policy_filter.load_judgements([revision.key for revision in revisions.values()])
        violations = {
            skill_id: violation
            for skill_id, revision in revisions.items()
            if (violation := policy_filter.check_revision(revision)) is not None
        }
        if not violations or round_ == _POLICY_ROUNDS - 1:
            break
        ranking = policy_filter.withhold(ranking)
        choice = choose(context, ranking)
    choice.withheld |= violations
    allowed = {
        name: policy_filter.settle(revision)
        for name, revision in revisions.items()
        if name not in violations
    }
    return ChosenRevisions(ranking, choice, allowed)


def _read_or_fall_back(
    context: QueryContext, chosen: Sequence[ChosenSkill]
) -> dict[str, StoredRevision]:
    """Return published revisions with the findings of the present scanner, by skill_id; revisions
    from the catalog's data if the index does not answer."""
    try:
        found = _read(context, chosen)
    except TransientError as error:
        if not context.can_degrade:
            raise
        context.degradations.add(
            "descriptions in place of passages: the search index did not answer", error
        )
        entries = context.services.graph.get_entries([one.skill_id for one in chosen])
        return fallback_revisions(entries) | _find_pinned(context, chosen)
    return {key: context.policy_filter.rescan(revision) for key, revision in found.items()}


def _read(context: QueryContext, chosen: Sequence[ChosenSkill]) -> dict[str, StoredRevision]:
    """Return the published revisions by skill_id, or the revisions that the request pins. A
    revision that was superseded and deleted meanwhile is replaced by the newest."""
    library = context.services.library
    found = _find_pinned(context, chosen)
    for attempt in range(_READ_ATTEMPTS):
        pointers = (library.refresh() if attempt else library.latest).pointers
        keys = [
            RevisionKey(skill.skill_id, pointers[skill.skill_id])
            for skill in chosen
            if skill.skill_id in pointers and skill.skill_id not in found
        ]
        if not keys:
            break
        for key, revision in context.services.index.get_revisions(keys).items():
            found[key.skill_id] = revision
    return found


def _find_pinned(context: QueryContext, chosen: Sequence[ChosenSkill]) -> dict[str, StoredRevision]:
    """Return the revisions of the chosen skills that the request pins; they were read before."""
    pinned = context.policy_filter.pinned
    return {one.skill_id: pinned[one.skill_id] for one in chosen if one.skill_id in pinned}
