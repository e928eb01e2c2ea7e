"""What the policy keeps back of a ranking, and what the bundle says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from config.settings import ChoiceSettings, Settings
from search import evidence
from search.protocol import StoredRevision
from skills.bundle import Withheld
from skills.policy import Refusal
from tasks.choice import Choice
from tasks.retrieval import Ranking
from tasks.screening import Screen, WithheldHit, considered, told


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


def sendable(
    revisions: Mapping[str, StoredRevision], choice: Choice, screen: Screen
) -> dict[str, StoredRevision]:
    """Revisions that may be sent: one that changed since it was ranked is looked at again.

    Those that may not are noted in the choice.
    """
    sendable = {}
    for skill_id, revision in revisions.items():
        refusal = screen.final(skill_id, revision.parsed.record)
        if refusal is None:
            sendable[skill_id] = revision
        else:
            choice.withheld[skill_id] = refusal
    return sendable


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
