"""Reports activations of skills as outcomes `used` of the queries that sent them."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from skills.access import Reader
from skills.events import GATEWAY_SOURCE, OutcomesReported, SkillOutcome, new_event, replace_origin
from skills.outcomes.model import AnsweredQuery, OutcomeKind, Reporter
from workers.backend.store_backend import StoreBackend
from workers.telemetry.otlp_logs import SkillActivation

_CLOCK_SECONDS = 60.0
"""Seconds by which the clock of an agent may be behind."""


class ActivationReporter:
    """Reports the activations of one request.

    owner: sender of the activations, whose queries they may be about; "" is the user of this
    machine. reader: reader of the sender, which limits the skills it may see.
    """

    def __init__(self, backend: StoreBackend, owner: str, reader: Reader) -> None:
        self._backend = backend
        self._owner = owner
        self._reader = reader
        self._sessions: dict[str, list[AnsweredQuery]] = {}
        self._names: dict[str, str] = {}

    def report(self, activations: Iterable[SkillActivation]) -> Counter[str]:
        """Accept an outcome for each activation, and return the numbers of ignored ones by reason.

        A skill counts as used once per query, however often it is activated. Raises TransientError
        if too many outcomes are open.
        """
        ignored: Counter[str] = Counter()
        for one in activations:
            queries = self._find_queries(one)
            found = self._find_skill(queries, one)
            if found is not None:
                self._accept(*found, one.at)
            elif queries:
                ignored["of skills that no query of the session was answered with"] += 1
            else:
                ignored["of unknown sessions or queries"] += 1
        return ignored

    def _find_queries(self, one: SkillActivation) -> list[AnsweredQuery]:
        """Return answered queries that an activation may be about, newest first."""
        store = self._backend.outcome_store()
        if one.query_id:
            answer = store.get_answers([one.query_id]).get(one.query_id)
            is_own = answer is not None and self._owner in ("", answer.owner)
            return [answer] if answer is not None and is_own else []
        if one.session not in self._sessions:
            limit = self._backend.settings.sessions.queries
            found = store.list_session(self._owner, one.session, limit)
            self._sessions[one.session] = found[::-1]
        until = (one.at or time.time()) + _CLOCK_SECONDS
        return [answer for answer in self._sessions[one.session] if answer.answered <= until]

    def _find_skill(
        self, queries: Sequence[AnsweredQuery], one: SkillActivation
    ) -> tuple[str, str] | None:
        """Return query and skill of an activation: the newest query for
        which the skill was sent."""
        if not one.skill_id:
            self._read_names(queries)
        for answer in queries:
            for skill in answer.skills:
                if skill.sent and self._is_skill(skill.skill_id, one):
                    return answer.query_id, skill.skill_id
        return None

    def _is_skill(self, skill_id: str, one: SkillActivation) -> bool:
        if one.skill_id:
            return skill_id == one.skill_id
        folder = skill_id.rpartition("/")[2].rpartition(":")[2]
        known = {_normalise(name) for name in (skill_id, self._names[skill_id], folder) if name}
        # Agents put the name of a plugin before that of its skill: `plugin:skill`.
        return _normalise(one.name) in known or _normalise(one.name.rpartition(":")[2]) in known

    def _read_names(self, queries: Iterable[AnsweredQuery]) -> None:
        """Read the names of the skills that were sent, in one call of the catalog."""
        sent = {skill.skill_id for answer in queries for skill in answer.skills if skill.sent}
        if missing := sorted(sent - self._names.keys()):
            entries = self._backend.graph.get_entries(missing)
            self._names |= dict.fromkeys(missing, "")
            self._names |= {entry.skill_id: entry.name for entry in entries}

    def _accept(self, query_id: str, skill_id: str, at: float) -> None:
        outcome = SkillOutcome(skill_id=skill_id, outcome=OutcomeKind.USED, by=Reporter.AGENT)
        data = OutcomesReported(query_id=query_id, outcomes=(outcome,))
        event = replace_origin(new_event(data, GATEWAY_SOURCE), self._owner, self._reader)
        text = f"otlp\0{self._owner}\0{query_id}\0{skill_id}"
        changes: dict[str, object] = {"id": hashlib.sha256(text.encode()).hexdigest()[:32]}
        if at:
            changes["time"] = datetime.fromtimestamp(at, UTC)
        self._backend.accept_if_new(event.model_copy(update=changes))


def describe_ignored(ignored: Counter[str]) -> str:
    """Return the reasons in one text, the most frequent first."""
    return "; ".join(f"{count} {reason}" for reason, count in ignored.most_common())


def _normalise(name: str) -> str:
    """Return a name without regard to case and separators, as the catalog compares names."""
    return name.casefold().replace("_", "-").replace(" ", "-")
