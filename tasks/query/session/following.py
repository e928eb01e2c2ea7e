"""How much of each chosen skill a query of a session sends.

An agent that asks brief questions asks again: a skill that is probably not right is introduced by
the passage that the task needs most, and more of it follows when a later query makes it likelier.
Passages beyond what is enough wait for a query that needs them. What was sent is not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from skills.bundle.model import AlreadySent
from tasks.query.select_passages import SkillPassages
from tasks.query.session.state import SessionState
from tasks.query.session.unsent import find_sent_passages, to_ranges

_LIKELY = 0.5
"""Share of the best probability from which on all that is enough of a skill is sent."""

_CONTINUED_WORTH = 1e-3
"""Further passages of a skill that was sent before come behind every new skill."""


def mark_sent(session: SessionState, skills: Sequence[SkillPassages]) -> list[SkillPassages]:
    """Return the skills with the lines that the session has sent of the same revision."""
    return [
        replace(skill, sent=session.sent[skill.revision.key].lines)
        if skill.revision.key in session.sent
        else skill
        for skill in skills
    ]


def list_already_sent(
    session: SessionState, skills: Sequence[SkillPassages]
) -> Iterator[AlreadySent]:
    """What was sent earlier of those that `mark_sent` has marked."""
    for skill in skills:
        if skill.sent:
            key = skill.revision.key
            yield AlreadySent(
                skill_id=key.skill_id,
                name=skill.revision.parsed.record.name,
                seq=key.seq,
                lines=tuple(to_ranges(skill.sent)),
                tokens=session.sent[key].tokens,
            )


def drop_sent(skill: SkillPassages) -> SkillPassages:
    """Return the skill with the passages that were not sent before."""
    if not skill.sent:
        return skill
    gone = set(find_sent_passages(skill.revision.parsed, skill.sent))
    enough = [index for index in skill.passages[: skill.enough] if index not in gone]
    rest = [index for index in skill.passages[skill.enough :] if index not in gone]
    return replace(skill, passages=(*enough, *rest), enough=len(enough))


def plan_portions(skills: Sequence[SkillPassages]) -> list[SkillPassages]:
    """Each skill with the passages that a query of a session may send of it.

    Of a likely skill those that are enough, of another the one most needed; of one that was sent
    before those of the enough ones that were not, if it is likely, after all new skills. A skill is
    likely if its probability is at least half of the best one's, or was not estimated.
    """
    best = max((skill.chosen.probability or 0.0 for skill in skills), default=0.0)
    return [_plan_portion(skill, _LIKELY * best) for skill in skills]


def _plan_portion(skill: SkillPassages, least: float) -> SkillPassages:
    probability = skill.chosen.probability
    likely = skill.first or probability is None or probability >= least
    if not skill.sent:
        wanted = skill.passages[: skill.enough if likely else 1]
        return replace(skill, passages=wanted, enough=len(wanted), brief=True)
    unsent = drop_sent(skill)
    wanted = unsent.passages[: unsent.enough if likely else 0]
    chosen = skill.chosen
    if not skill.first:
        chosen = replace(chosen, worth=chosen.worth * _CONTINUED_WORTH)
    return replace(skill, chosen=chosen, passages=wanted, enough=len(wanted))
