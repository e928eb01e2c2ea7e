"""Exclusion of skills that did not serve in a session from its further answers, with the reason."""

from __future__ import annotations

from dataclasses import replace

from tasks.query.ranking import Ranking
from tasks.query.session.state import SessionState

_NAMED = 20
"""Number of first places within which a refused skill is named."""


def drop_refused(ranking: Ranking, session: SessionState) -> Ranking:
    """Return the ranking without the skills that failed, or were rejected or superseded, in the
    session.

    Must be called before probabilities are estimated, so that those of other skills do not depend
    on refused ones.
    """
    if not session.refused:
        return ranking
    refused = [hit.key.skill_id for hit in ranking.hits[:_NAMED]]
    return replace(
        ranking,
        hits=tuple(hit for hit in ranking.hits if hit.key.skill_id not in session.refused),
        refused=tuple(name for name in refused if name in session.refused),
    )
