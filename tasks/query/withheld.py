"""What the policy keeps back of a ranking, and what the bundle says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from config.settings import ChoiceSettings, Settings
from search.protocol import StoredRevision
from search.scoring.evidence_floor import has_evidence
from skills.bundle.model import Withheld
from skills.skill_policy import PolicyViolation
from tasks.query.choose import SkillChoice
from tasks.query.policy_filter import PolicyFilter, WithheldHit, build_withheld, filter_considered
from tasks.query.retrieve import Ranking
from tasks.services import Services

_ROUNDS = 3


def make_policy_filter(services: Services) -> PolicyFilter:
    """The screen of the settings' policy and of what the sources allow."""
    sources = services.graph.list_sources()
    return PolicyFilter(services.settings.policy, services.fact_cache, services.graph, sources)


def is_evident(ranking: Ranking, settings: ChoiceSettings) -> bool:
    """Whether anything in the library is evidently about the task."""
    floors = (settings.floor, settings.floor_long)
    return has_evidence(
        ranking.evidence,
        ranking.best_cosine,
        ranking.library_size,
        ranking.long_task_weight,
        floors,
        settings.floor_cosine,
    )


def filter_linked_hits(ranking: Ranking, policy_filter: PolicyFilter) -> Ranking:
    """The ranking without withheld skills that came in over links."""
    refused = policy_filter([hit.key for hit in ranking.hits])
    if not refused:
        return ranking
    known = {hit.skill_id for hit in ranking.withheld}
    best = max(hit.score for hit in ranking.hits)
    linked = tuple(
        WithheldHit(hit.key.skill_id, refused[hit.key.skill_id], place, hit.score / best)
        for place, hit in enumerate(ranking.hits)
        if hit.key.skill_id in refused and hit.key.skill_id not in known and best > 0
    )
    kept = tuple(hit for hit in ranking.hits if hit.key.skill_id not in refused)
    return replace(ranking, hits=kept, withheld=(*ranking.withheld, *linked))


@dataclass(frozen=True, slots=True)
class FinalChoice:
    """A choice whose revisions may all be sent, and the ranking that it was made of."""

    ranking: Ranking
    choice: SkillChoice
    revisions: dict[str, StoredRevision]


def finalize_choice(
    ranking: Ranking,
    choice: SkillChoice,
    policy_filter: PolicyFilter,
    choose: Callable[[Ranking], SkillChoice],
    read: Callable[[SkillChoice], Mapping[str, StoredRevision]],
) -> FinalChoice:
    """Read what was chosen; where a revision itself says that it may not be sent, choose again
    without it, so that the next best takes its place.

    That is so where a skill changed since it was ranked, the catalog is away, or an older scanner
    marked it. After some rounds the rest goes without a replacement, and is noted in the choice.
    """
    for round_ in range(_ROUNDS):
        revisions = read(choice)
        refused = {
            skill_id: violation
            for skill_id, revision in revisions.items()
            if (violation := policy_filter.check_revision(revision.key, revision.parsed.record))
            is not None
        }
        if not refused or round_ == _ROUNDS - 1:
            break
        ranking = filter_linked_hits(ranking, policy_filter)
        choice = choose(ranking)
    choice.withheld |= refused
    kept = {name: revision for name, revision in revisions.items() if name not in refused}
    return FinalChoice(ranking, choice, kept)


def collect_withheld(
    ranking: Ranking, choice: SkillChoice, settings: Settings, top: int, *, floor: bool
) -> Withheld:
    """What would have been considered without the policy, the best first, then what is needed.

    Candidates count where the library, the withheld ones included, is evidently about the task.
    """
    best = max([ranking.evidence, *(hit.evidence for hit in ranking.withheld)])
    near = max([ranking.best_cosine or 0.0, *(hit.best_cosine for hit in ranking.withheld)])
    whole = replace(ranking, evidence=best, best_cosine=near or None)
    refusals: dict[str, PolicyViolation] = {}
    if ranking.withheld and (not floor or is_evident(whole, settings.choice)):
        refusals |= filter_considered(ranking.withheld, top, settings.choice.relative)
    refusals |= choice.withheld
    return build_withheld(refusals, name_them=settings.policy.name_withheld)
