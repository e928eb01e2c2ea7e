"""Labelled prompts of a library: tasks for which a person reported the right skills."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from skills.batches import batches
from skills.outcomes.labels import settle_labels
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes.change_reader import ChangeReader
from tasks.outcomes.protocol import OutcomeStore

_BATCH = 500


@dataclass(frozen=True, slots=True)
class LabelledPrompt:
    """A task of a query, with the skills that a person reported.

    right: skills that helped, or would have. wrong: skills that did not. missing: whether the
    person reported that the library has no right skill. owner: of the query, "" for the user of
    this machine. labelled: time of the newest report, in seconds since the epoch.
    """

    query_id: str
    task: str
    owner: str
    answered: float
    labelled: float
    right: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    missing: bool = False


class LabelledPrompts:
    """The labelled prompts of a store of outcomes, kept in memory; thread-safe.

    The first read takes all queries with outcomes, later reads only changed ones.
    """

    def __init__(self, store: OutcomeStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._changes = ChangeReader(store, check_seconds=0.0)
        self._found: dict[str, LabelledPrompt] = {}
        self._tasks: dict[str, str] = {}

    def read(self) -> list[LabelledPrompt]:
        """Return the prompts, newest first; raises TransientError if the store does not answer."""
        with self._lock:
            self._follow()
            return sorted(self._found.values(), key=lambda one: (-one.labelled, one.query_id))

    def list_same_task(self, task: str) -> frozenset[str]:
        """Return the ids of queries with this task and with outcomes, as of the last `read`."""
        wanted = normalise_task(task)
        with self._lock:
            return frozenset(one for one, known in self._tasks.items() if known == wanted)

    def _follow(self) -> None:
        changes = self._changes.read()
        if not changes.after:
            self._found, self._tasks = {}, {}
        for batch in batches(changes.query_ids, _BATCH):
            answers, outcomes = self._store.get_answers(batch), self._store.get_outcomes(batch)
            for query_id in batch:
                self._replace(query_id, answers.get(query_id), outcomes.get(query_id, ()))
        self._changes.finish(changes)

    def _replace(
        self, query_id: str, answer: AnsweredQuery | None, outcomes: tuple[Outcome, ...]
    ) -> None:
        self._found.pop(query_id, None)
        self._tasks.pop(query_id, None)
        if answer is None or not outcomes:
            return
        self._tasks[query_id] = normalise_task(answer.task)
        labelled = label_prompt(answer, outcomes)
        if labelled is not None:
            self._found[query_id] = labelled


def normalise_task(task: str) -> str:
    """Return the normal form of a task; equal tasks have the same form."""
    return " ".join(task.split()).casefold()


def label_prompt(answer: AnsweredQuery, outcomes: Iterable[Outcome]) -> LabelledPrompt | None:
    """Return the label that persons gave a query; None if their reports decide nothing."""
    by_person = [one for one in outcomes if one.by is Reporter.PERSON]
    if not by_person or not answer.task.strip():
        return None
    labels = settle_labels(by_person)
    right = tuple(dict.fromkeys(one.skill_id for one in labels if one.helped))
    wrong = tuple(dict.fromkeys(one.skill_id for one in labels if one.rejected))
    missing = not right and any(one.kind is OutcomeKind.MISSING for one in by_person)
    return LabelledPrompt(
        query_id=answer.query_id,
        task=answer.task,
        owner=answer.owner,
        answered=answer.answered,
        labelled=max(one.reported for one in by_person),
        right=right,
        wrong=tuple(one for one in wrong if one not in right),
        missing=missing,
    )


def merge_by_task(prompts: Iterable[LabelledPrompt]) -> list[LabelledPrompt]:
    """Return one prompt for each task, with all skills that are right for it, for evaluation.
    Prompts that name no right skill, and do not say that none is right, are left out.

    The newest report comes first. If only some reports say that no skill is right, it decides.
    """
    merged: dict[str, LabelledPrompt] = {}
    for one in prompts:
        if not one.right and not one.missing:
            continue
        task = normalise_task(one.task)
        known = merged.get(task)
        if known is None:
            merged[task] = one
        elif one.right and known.right:
            right = tuple(dict.fromkeys((*known.right, *one.right)))
            merged[task] = LabelledPrompt(
                *(known.query_id, known.task, known.owner, known.answered, known.labelled, right)
            )
    return list(merged.values())
