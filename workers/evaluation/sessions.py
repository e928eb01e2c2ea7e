"""Evaluation of sessions: long tasks queried paragraph by paragraph, compared with one query."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from skills.access import UNRESTRICTED
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from skills.record import RevisionKey
from tasks.outcomes.record_answers import QueryFacts, describe_answer
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.query.filling.allocation import BudgetTooSmallError
from tasks.query.session.state import Asker
from tasks.services import Services
from workers.evaluation.ask import ask

ARMS = ("one_shot", "one_shot_brief", "paragraphs", "following")

_PARAGRAPHS = re.compile(r"\n[^\S\n]*\n\s*")
_SECONDS_APART = 60.0


@dataclass(slots=True)
class Sent:
    """Everything that was sent for one task, over one or more queries.

    lines: line numbers by revision. tokens: of all bundles. repeated: number of lines that were
    sent more than once. queries: number of queries. steps: after each query, the tokens and the
    number of needed skills sent so far.
    """

    lines: dict[RevisionKey, set[int]] = field(default_factory=dict)
    tokens: int = 0
    repeated: int = 0
    queries: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def skills(self) -> set[str]:
        """Ids of the skills of which a line was sent."""
        return {key.skill_id for key in self.lines}

    def add(self, bundle: Bundle | None, needed: Collection[str]) -> None:
        """Count the answer to a query; None if its budget was too small."""
        self.queries += 1
        for skill in bundle.skills if bundle else ():
            lines = self.lines.setdefault(RevisionKey(skill.skill_id, skill.revision.seq), set())
            for passage in skill.passages:
                numbers = range(passage.first_line, passage.last_line + 1)
                self.repeated += sum(number in lines for number in numbers)
                lines.update(numbers)
        self.tokens += bundle.tokens if bundle else 0
        self.steps.append((self.tokens, len(self.skills.intersection(needed))))


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, which blank lines divide."""
    return [part for part in _PARAGRAPHS.split(text.strip()) if part.strip()]


class SessionRunner:
    """Runs queries of simulated agents on an open library, which is not changed.

    without: stages to switch off.
    """

    def __init__(self, services: Services, without: Collection[str] = ()) -> None:
        self._store = SqliteOutcomeStore(":memory:")
        self._services = replace(services, outcomes=self._store)
        self._without = tuple(without)
        self._clock = 0.0
        self._number = 0

    def close(self) -> None:
        """Delete the sessions."""
        self._store.close()

    def new_session(self) -> str:
        """Return the id of a new session."""
        self._number += 1
        return f"session {self._number}"

    def ask(
        self, task: str, budget: int, session: str = "", *, brief: bool = False
    ) -> Bundle | None:
        """Return the bundle of a query, None if the budget is too small for one passage, or for the
        names of what the session was sent before."""
        self._clock += _SECONDS_APART
        self._number += 1
        query_id = f"query {self._number}"
        request = QueryAsked(
            task=task, budget=max(budget, 1), without=self._without, session=session, brief=brief
        )
        try:
            bundle = ask(self._services, query_id, request, Asker("", self._clock, UNRESTRICTED))
        except BudgetTooSmallError:
            return None
        if session:
            facts = QueryFacts("", self._clock, session)
            self._store.add_answers([describe_answer(bundle, query_id, facts)])
        return bundle


def evaluate_task(runner: SessionRunner, task: Mapping[str, Any], budget: int) -> dict[str, Sent]:
    """Return what is sent for a task and a budget of tokens: by one query, by one brief query, and
    by brief queries of a session, each with one paragraph more.

    The remaining budget is divided evenly among the remaining queries of the session. The result
    `following` is for the whole task as the second query of a session that began with the first
    half of its paragraphs, each query with the full budget.
    """
    text, needed = task["instruction"], task["gt_skill_ids"]
    parts = split_paragraphs(text)
    found = {arm: Sent() for arm in ARMS}
    found["one_shot"].add(runner.ask(text, budget), needed)
    found["one_shot_brief"].add(runner.ask(text, budget, runner.new_session(), brief=True), needed)
    session, revealed = runner.new_session(), found["paragraphs"]
    for count in range(1, len(parts) + 1):
        share = (budget - revealed.tokens) // (len(parts) - count + 1)
        known = "\n\n".join(parts[:count])
        revealed.add(runner.ask(known, share, session, brief=True), needed)
    session, half = runner.new_session(), max(len(parts) // 2, 1)
    for known in ("\n\n".join(parts[:half]), text):
        found["following"].add(runner.ask(known, budget, session), needed)
    return found


def evaluate_sessions(
    services: Services,
    tasks: Sequence[Mapping[str, Any]],
    budget: int,
    without: Collection[str] = (),
) -> Iterator[tuple[str, dict[str, Sent]]]:
    """Yield task id and what was sent for it, see `evaluate_task`."""
    with closing(SessionRunner(services, without)) as runner:
        for task in tasks:
            yield task["task_id"], evaluate_task(runner, task, budget)


def session_metrics(
    needed: Mapping[str, Collection[str]], given: Mapping[str, Mapping[str, Sent]]
) -> dict[str, dict[str, float]]:
    """Return figures of each way of asking, over tasks that need skills.

    complete: share of tasks for which all needed skills were sent. recall: mean share of the
    needed skills that were sent. needed_skills, needed_lines: number of needed skills, and of
    their lines, that were sent. tokens: of all bundles. skills_per_1000 and lines_per_1000: of
    these per 1,000 tokens. lines_sent_again: over the queries of a session. against_one_shot:
    `skills_per_1000` over that of one shot.
    """
    tasks = [task for task, wanted in needed.items() if wanted]
    report: dict[str, dict[str, float]] = {}
    for arm in ARMS:
        rows = [(set(needed[task]), given[task][arm]) for task in tasks]
        skills = sum(len(wanted & sent.skills) for wanted, sent in rows)
        lines = sum(
            len(numbers)
            for wanted, sent in rows
            for key, numbers in sent.lines.items()
            if key.skill_id in wanted
        )
        tokens = sum(sent.tokens for _, sent in rows)
        recalls = [len(wanted & sent.skills) / len(wanted) for wanted, sent in rows]
        report[arm] = {
            "tasks": len(rows),
            "recall": sum(recalls) / len(rows),
            "complete": sum(wanted <= sent.skills for wanted, sent in rows) / len(rows),
            "needed_skills": skills,
            "needed_lines": lines,
            "tokens": tokens,
            "queries": sum(sent.queries for _, sent in rows),
            "lines_sent_again": sum(sent.repeated for _, sent in rows),
            "skills_per_1000": 1000 * skills / max(tokens, 1),
            "lines_per_1000": 1000 * lines / max(tokens, 1),
        }
    base = report["one_shot"]["skills_per_1000"]
    for figures in report.values():
        figures["against_one_shot"] = figures["skills_per_1000"] / base if base else 0.0
    return report


def trace_reveal(
    needed: Mapping[str, Collection[str]], given: Mapping[str, Mapping[str, Sent]], points: int = 10
) -> list[dict[str, float]]:
    """Return means over tasks after each tenth of the paragraphs: tokens, and the share of the
    needed skills that were sent."""
    curve = []
    for point in range(1, points + 1):
        rows = []
        for task, wanted in needed.items():
            if wanted:
                steps = given[task]["paragraphs"].steps
                tokens, skills = steps[-(-point * len(steps) // points) - 1]
                rows.append((tokens, skills / len(set(wanted))))
        curve.append(
            {
                "revealed": point / points,
                "tokens": sum(tokens for tokens, _ in rows) / len(rows),
                "recall": sum(recall for _, recall in rows) / len(rows),
            }
        )
    return curve
