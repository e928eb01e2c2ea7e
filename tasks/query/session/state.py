"""State of a session: a function of its answered queries and their outcomes in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from config.errors import TransientError, UsageError
from config.learning_settings import SessionSettings
from skills.access import Reader
from skills.events import QueryAsked
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind
from skills.record import RevisionKey, get_source_id
from tasks.query.degradation import Degradations
from tasks.services import Services

_SECONDS_PER_HOUR = 3600.0

_UNREADABLE = (
    "answered without its session, so what was sent before may be sent again: "
    "the store of outcomes did not answer"
)

_REFUSALS = {
    OutcomeKind.FAILED: "it failed in this session",
    OutcomeKind.REJECTED: "it was rejected in this session",
    OutcomeKind.SUPERSEDED: "it was superseded in this session",
}


@dataclass(frozen=True, slots=True)
class SentSkill:
    """Parts of one revision of a skill that were sent.

    lines: numbers of the sent lines. tokens: tokens of its parts of the bundles.
    """

    lines: frozenset[int] = frozenset()
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionState:
    """State of a session when one of its queries is answered.

    answers: number of earlier queries. task: task of the last query, "" without. sent: parts of
    skills that the agent still has, by revision; without parts that were sent before it lost its
    context. in_use: ids of sent skills, the latest first. refused: skill_id -> why it is excluded.
    """

    answers: int = 0
    task: str = ""
    sent: Mapping[RevisionKey, SentSkill] = field(default_factory=dict)
    in_use: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


NO_SESSION = SessionState()


@dataclass(frozen=True, slots=True)
class Asker:
    """The owner that asks a query. asked_at: seconds since the epoch. reader: what it may see."""

    owner: str
    asked_at: float
    reader: Reader


def load_session(
    services: Services,
    asker: Asker,
    request: QueryAsked,
    query_id: str,
    degradations: Degradations,
    visible: frozenset[str] | None = None,
) -> SessionState:
    """Return the state of the session of a query, an empty one without a session.

    visible: as in `build_state`. If the store does not answer, the query is answered without a
    session, which is recorded as a degradation. A query without a task of its own needs the
    session's task: it raises TransientError then, and UsageError if the session has no task.
    """
    if not request.session:
        return NO_SESSION
    settings = services.settings.sessions
    try:
        answers = services.outcomes.list_session(asker.owner, request.session, settings.queries + 1)
        # The query itself is among the answers if a crash interrupted its first attempt.
        earlier = [one for one in answers if one.query_id != query_id][-settings.queries :]
        recent = select_recent(earlier, asker.asked_at, settings)
        outcomes = services.outcomes.get_outcomes([one.query_id for one in recent])
    except TransientError as error:
        if not request.task.strip():
            raise
        degradations.add(_UNREADABLE, error)
        return NO_SESSION
    state = build_state(recent, outcomes, resend=request.resend, visible=visible)
    if not request.task.strip() and not state.task:
        raise UsageError(f"session {request.session!r} has no earlier query; give the task as well")
    return state


def select_recent(
    answers: Sequence[AnsweredQuery], asked_at: float, settings: SessionSettings
) -> list[AnsweredQuery]:
    """Return the queries of the session that is open at a time, oldest first: no two of them in
    sequence are further apart than `sessions.hours`.

    answers: queries with the id of the session, oldest first.
    """
    recent: list[AnsweredQuery] = []
    following = asked_at
    for answer in reversed(answers):
        if following - answer.answered > settings.hours * _SECONDS_PER_HOUR:
            break
        recent.append(answer)
        following = answer.answered
    return recent[::-1]


def build_state(
    answers: Sequence[AnsweredQuery],
    outcomes: Mapping[str, Sequence[Outcome]],
    *,
    resend: bool = False,
    visible: frozenset[str] | None = None,
) -> SessionState:
    """Return the state after these answered queries, oldest first.

    outcomes: by query. resend: the agent has lost everything that was sent so far. visible: sources
    whose skills the agent may see now, None for all; other skills are not in use, nor named in the
    reason of a refusal.
    """

    def is_visible(skill_id: str) -> bool:
        return visible is None or get_source_id(skill_id) in visible

    sent: dict[RevisionKey, SentSkill] = {}
    in_use: dict[str, None] = {}
    for answer in answers:
        if answer.resend:
            sent.clear()
        for skill in answer.skills:
            if not skill.sent:
                continue
            key = RevisionKey(skill.skill_id, skill.seq)
            before = sent.get(key, SentSkill())
            lines = before.lines.union(*(range(a, b + 1) for a, b in skill.lines))
            sent[key] = SentSkill(lines, before.tokens + skill.tokens)
            in_use.pop(skill.skill_id, None)
            in_use[skill.skill_id] = None
    reported = [one for answer in answers for one in outcomes.get(answer.query_id, ())]
    last = {one.skill_id: one for one in sorted(reported, key=lambda one: one.order)}
    refused = {
        skill_id: _describe_refusal(one, names_other=is_visible(one.other))
        for skill_id, one in last.items()
        if one.kind in _REFUSALS
    }
    return SessionState(
        len(answers),
        next((answer.task for answer in reversed(answers) if answer.task.strip()), ""),
        {} if resend else sent,
        tuple(one for one in reversed(in_use) if one not in refused and is_visible(one)),
        refused,
    )


def _describe_refusal(outcome: Outcome, *, names_other: bool) -> str:
    """Return the reason of an outcome that says that a skill did not serve."""
    is_superseded = outcome.kind is OutcomeKind.SUPERSEDED
    detail = f" by {outcome.other}" if is_superseded and names_other else ""
    reason = f" ({outcome.reason})" if outcome.reason else ""
    return _REFUSALS[outcome.kind] + detail + reason
