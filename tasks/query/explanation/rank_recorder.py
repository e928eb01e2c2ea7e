"""Recording of the ranks that skills have after each stage of a query (`explain_skills`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.query.ranking import Candidates, Ranking, TaskQuery


@dataclass(slots=True)
class RankRecorder:
    """Records the ranks of skills through the stages of a query; costs nothing without such skills.

    query: the searched query. candidates: the skills that search found. ranks: by skill and stage,
    from 1; 0 if the skill was not among the hits of the stage.
    """

    skill_ids: Sequence[str]
    query: TaskQuery | None = None
    candidates: frozenset[str] = frozenset()
    ranks: dict[str, dict[str, int]] = field(default_factory=dict)

    def record_candidates(self, candidates: Candidates) -> None:
        """Record which of the skills search found."""
        if self.skill_ids:
            self.query = candidates.query
            found = {key.skill_id for key in candidates.keys}
            self.candidates = frozenset(found.intersection(self.skill_ids))

    def record(self, stage: str, ranking: Ranking) -> Ranking:
        """Record the ranks of the skills after a stage; returns the ranking."""
        if self.skill_ids:
            places = {hit.key.skill_id: rank for rank, hit in enumerate(ranking.hits, 1)}
            for skill_id in self.skill_ids:
                self.ranks.setdefault(skill_id, {})[stage] = places.get(skill_id, 0)
        return ranking
