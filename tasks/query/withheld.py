"""What the policy keeps back of a ranking, and what the bundle says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from config.settings import ChoiceSettings, Settings
from search.protocol import StoredRevision
from search.scoring import evidence
from skills.bundle.model import Withheld
from skills.policy import Refusal
from tasks.query.choose import Choice
from tasks.query.policy_filter import Screen, WithheldHit, considered, told
from tasks.query.retrieve import Ranking
from tasks.services import Services

_ROUNDS = 3


def screen_of(services: Services) -> Screen:
    """The screen of the settings' policy and of what the sources allow."""
    sources = services.graph.sources()
    return Screen(services.settings.policy, services.facts, services.graph, sources)


def is_evident(ranking: Ranking, settings: ChoiceSettings) -> bool:
    """Whether anything in the library is evidently about the task."""
    floors = (settings.floor, settings.floor_long)
    return evidence.is_evident(
        ranking.evidence, ranking.nearness, ranking.skills, ranking.long, floors, settings.near
    )


def screened_again(ranking: Ranking, screen: Screen) -> Ranking:
    """The ranking without withheld skills that came in over links."""
    refused = screen([hit.key for hit in ranking.hits])
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
class Settled:
    """A choice whose revisions may all be sent, and the ranking that it was made of."""

    ranking: Ranking
    choice: Choice
    revisions: dict[str, StoredRevision]


def settle(
    ranking: Ranking,
    choice: Choice,
    screen: Screen,
    choose: Callable[[Ranking], Choice],
    read: Callable[[Choice], Mapping[str, StoredRevision]],
) -> Settled:
    """Read what was chosen; where a revision itself says that it may not be sent, choose again
    without it, so that the next best takes its place.

    That is so where a skill changed since it was ranked, the catalog is away, or an older scanner
    marked it. After some rounds the rest goes without a replacement, and is noted in the choice.
    """
    for round_ in range(_ROUNDS):
        revisions = read(choice)
        refused = {
            skill_id: refusal
            for skill_id, revision in revisions.items()
            if (refusal := screen.final(revision.key, revision.parsed.record)) is not None
        }
        if not refused or round_ == _ROUNDS - 1:
            break
        ranking = screened_again(ranking, screen)
        choice = choose(ranking)
    choice.withheld |= refused
    kept = {name: revision for name, revision in revisions.items() if name not in refused}
    return Settled(ranking, choice, kept)


def withheld_from(
    ranking: Ranking, choice: Choice, settings: Settings, top: int, *, floor: bool
) -> Withheld:
    """What would have been considered without the policy, the best first, then what is needed.

    Candidates count where the library, the withheld ones included, is evidently about the task.
    """
    best = max([ranking.evidence, *(hit.evidence for hit in ranking.withheld)])
    near = max([ranking.nearness or 0.0, *(hit.nearness for hit in ranking.withheld)])
    whole = replace(ranking, evidence=best, nearness=near or None)
    refusals: dict[str, Refusal] = {}
    if ranking.withheld and (not floor or is_evident(whole, settings.choice)):
        refusals |= considered(ranking.withheld, top, settings.choice.relative)
    refusals |= choice.withheld
    return told(refusals, name_them=settings.policy.name_withheld)
