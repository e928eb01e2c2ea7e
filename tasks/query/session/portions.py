"""Portion of each chosen skill that a query of a session sends.

An agent that sends brief queries sends more of them: an unlikely skill is introduced by its most
needed passage, and more of it follows when a later query makes it likelier. Passages beyond the
enough ones wait for a query that needs them. Sent passages are not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from skills.bundle.model import AlreadySent
from tasks.query.select_passages import SkillPassages
from tasks.query.session.state import SessionState
from tasks.query.session.unsent import find_sent_passages, to_ranges

_LIKELY = 0.5
"""Share of the best probability from which on all enough passages of a skill are sent."""

_CONTINUED_WORTH = 1e-3
"""Worth of further passages of a skill that was sent before, so that they come behind every new
skill."""


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
    """Yield the skills marked by `mark_sent`, with the lines that were sent earlier."""
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
    """Return the skill without the passages that were sent before."""
    if not skill.sent:
        return skill
    gone = set(find_sent_passages(skill.revision.parsed, skill.sent))
    enough = [index for index in skill.passages[: skill.enough] if index not in gone]
    rest = [index for index in skill.passages[skill.enough :] if index not in gone]
    return replace(skill, passages=(*enough, *rest), enough=len(enough))


def plan_portions(skills: Sequence[SkillPassages]) -> list[SkillPassages]:
    """Return each skill with the passages that a query of a session may send of it.

    These are the enough passages of a likely skill and the most needed passage of any other. Of a
    skill that was sent before, they are its unsent enough passages, if it is likely, and come after
    all new skills. A skill is likely if its probability is at least half of the best one's, or was
    not estimated.
    """
    best = max((skill.chosen.probability or 0.0 for skill in skills), default=0.0)
    return [_plan_portion(skill, _LIKELY * best) for skill in skills]


def _plan_portion(skill: SkillPassages, min_probability: float) -> SkillPassages:
    probability = skill.chosen.probability
    likely = skill.first or probability is None or probability >= min_probability
    if not skill.sent:
        wanted = skill.passages[: skill.enough if likely else 1]
        return replace(skill, passages=wanted, enough=len(wanted), brief=True)
    unsent = drop_sent(skill)
    wanted = unsent.passages[: unsent.enough if likely else 0]
    chosen = skill.chosen
    if not skill.first:
        chosen = replace(chosen, worth=chosen.worth * _CONTINUED_WORTH)
    return replace(skill, chosen=chosen, passages=wanted, enough=len(wanted))
