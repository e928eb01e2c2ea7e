"""Learning from outcomes: replays labelled prompts as a stream and ranks
other prompts meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from search.protocol import Encoder, Vector
from tasks.outcomes.protocol import OutcomeStore, TaskVectors, quantise_vector
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.services import Lazy, Services
from workers.evaluation.learning_arms import ARMS, WITHOUT
from workers.evaluation.learning_stream import (
    LabelledTask,
    Scenario,
    Split,
    answer_of,
    choose_poisoned,
    find_successors,
    outcomes_of,
    poison,
    split_tasks,
)
from workers.evaluation.metrics import routing_metrics
from workers.evaluation.predictions import MAX_RANKED, rank_task

METRICS = ("Hit@1", "R@5", "R@10")
CHECKPOINTS = 4
"""Number of points, evenly over the stream, at which prompts that are not replayed are ranked."""


class CachingEncoder:
    """Encodes each query once and caches its vector."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._vectors: dict[str, Vector] = {}
        self.model, self.dimension = encoder.model, encoder.dimension
        self.languages = encoder.languages

    def encode_queries(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of the encoder, from the cache if possible."""
        for text in texts:
            if text not in self._vectors:
                self._vectors[text] = self._encoder.encode_queries([text])[0]
        return np.stack([self._vectors[text] for text in texts])

    def encode_texts(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        """Return the vectors of the encoder."""
        return self._encoder.encode_texts(texts, before_batch)


@dataclass(slots=True)
class Checkpoint:
    """Figures after a number of replayed prompts.

    figures: of held-out prompts. new: of prompts whose skills are right for no replayed prompt.
    gained: mean number of places that poisoned skills gained, None without poison.
    """

    replayed: int
    figures: dict[str, float]
    new: dict[str, float]
    gained: float | None = None


@dataclass(slots=True)
class ScenarioResult:
    """Checkpoints of a scenario by arm."""

    name: str
    arms: dict[str, list[Checkpoint]] = field(default_factory=dict)


class Replay:
    """Replays scenarios against a library, which is not changed.

    base: ranking of each prompt without learning, once `rank_base` was called.
    """

    def __init__(
        self,
        services: Services,
        tasks: Sequence[LabelledTask],
        seed: int,
        arms: Sequence[str] = tuple(ARMS),
    ) -> None:
        """Set up a replay. arms: names of ARMS; the arm without learning is always included."""
        encoder: Encoder = CachingEncoder(services.encoder.get())
        self._services = replace(services, encoder=Lazy(lambda: encoder))
        self.tasks = tasks
        self.seed = seed
        self._arms = {name: ARMS[name] for name in ARMS if name in (WITHOUT, *arms)}
        self.base: dict[str, Sequence[str]] = {}

    def count_steps(self, scenarios: Sequence[Scenario]) -> int:
        """Return how many prompts are ranked for these scenarios."""
        steps = len(self.tasks)
        for scenario in scenarios:
            split = split_tasks(self.tasks, self.seed, drifts=scenario.drifts)
            asked = CHECKPOINTS * (len(split.held_out) + len(split.new))
            steps += (len(self._arms) - 1) * (asked + len(split.replayed))
        return steps

    def rank_base(self, on_step: Callable[[], None]) -> None:
        """Rank all prompts without any learning; needed once before `run`."""
        with _open_store() as (store, folder):
            services = ARMS[WITHOUT](replace(self._services, outcomes=store), folder)
            for task in self.tasks:
                self.base[task.task_id] = _rank(services, task)
                on_step()

    def run(self, scenario: Scenario, on_step: Callable[[], None]) -> ScenarioResult:
        """Replay one scenario with each arm."""
        split = split_tasks(self.tasks, self.seed, drifts=scenario.drifts)
        result = ScenarioResult(scenario.name)
        for name, learn in self._arms.items():
            with _open_store() as (store, folder):
                services = replace(self._services, outcomes=store)
                learn_here = partial(learn, services, folder)
                stream = _Stream(self, scenario, split, learn_here, learns=name != WITHOUT)
                result.arms[name] = stream.run(on_step)
        return result


class _Stream:
    """The stream of one scenario with one arm."""

    def __init__(
        self,
        replay: Replay,
        scenario: Scenario,
        split: Split,
        learn: Callable[[], Services],
        *,
        learns: bool,
    ) -> None:
        """Set up a stream. learn: returns services that use what is learned
        from the outcomes so far."""
        self._replay, self._scenario, self._split = replay, scenario, split
        self._learn, self._learns = learn, learns
        self._services = learn()
        self._rng = np.random.default_rng(replay.seed)
        self._successors: dict[str, str] = {}
        self._poisoned: list[str] = []
        if scenario.has_replaced:
            self._successors = find_successors(replay.tasks, replay.base)
        if scenario.is_poisoned:
            right = {name for task in replay.tasks for name in task.right}
            ids = list(self._services.library.refresh().pointers)
            self._poisoned = choose_poisoned(ids, right, replay.seed)

    def run(self, on_step: Callable[[], None]) -> list[Checkpoint]:
        """Replay the stream and return its checkpoints."""
        stream = self._split.replayed
        ends = {round(len(stream) * at / CHECKPOINTS) for at in range(1, CHECKPOINTS + 1)}
        found = []
        for place, task in enumerate(stream):
            ranked = self._ask(task, on_step)
            if self._learns:
                self._report(task, ranked, place)
            if place + 1 in ends:
                self._services = self._learn()
                found.append(self._check(place + 1, on_step))
        return found

    def _ask(self, task: LabelledTask, on_step: Callable[[], None]) -> Sequence[str]:
        if not self._learns:
            return self._replay.base[task.task_id]
        on_step()
        return _rank(self._services, task)

    def _right(self, task: LabelledTask, place: int) -> tuple[str, ...]:
        """Return the skills that are right for a task after `place` of the stream."""
        if 2 * place < len(self._split.replayed):
            return task.right
        return tuple(self._successors.get(name, name) for name in task.right)

    def _report(self, task: LabelledTask, ranked: Sequence[str], place: int) -> None:
        length, scenario = len(self._split.replayed), self._scenario
        answer = answer_of(task, ranked, place, length, scenario)
        right = self._right(task, place)
        outcomes = outcomes_of(answer, right, scenario.flipped, self._rng)
        reports = [(answer, outcomes)]
        if self._poisoned:
            reports += poison(answer, self._poisoned, place, len(outcomes))
        store, encoder = self._services.outcomes, self._services.encoder.get()
        vector = quantise_vector(encoder.encode_queries([task.text])[0])
        for one, reported in reports:
            store.add_answers([one], TaskVectors(encoder.model, {one.query_id: vector}))
            store.add_outcomes(reported)

    def _check(self, replayed: int, on_step: Callable[[], None]) -> Checkpoint:
        held_out = {task.task_id: self._ask(task, on_step) for task in self._split.held_out}
        new = {task.task_id: self._ask(task, on_step) for task in self._split.new}
        return Checkpoint(
            replayed,
            self._measure(self._split.held_out, held_out, replayed),
            self._measure(self._split.new, new, replayed),
            self._gained(held_out) if self._poisoned else None,
        )

    def _measure(
        self, tasks: Sequence[LabelledTask], ranked: Mapping[str, Sequence[str]], place: int
    ) -> dict[str, float]:
        needed = {task.task_id: self._right(task, place) for task in tasks}
        found = routing_metrics(needed, ranked)
        return {name: found[name] for name in METRICS if name in found}

    def _gained(self, ranked: Mapping[str, Sequence[str]]) -> float:
        """Return how many places higher poisoned skills are than without learning, on average."""
        gains = [
            _place(self._replay.base[task_id], name) - _place(found, name)
            for task_id, found in ranked.items()
            for name in self._poisoned
        ]
        return float(np.mean(gains)) if gains else 0.0


def _place(ranked: Sequence[str], skill_id: str) -> int:
    return ranked.index(skill_id) if skill_id in ranked else MAX_RANKED


@contextmanager
def _open_store() -> Iterator[tuple[OutcomeStore, Path]]:
    """Open a store of outcomes in a temporary folder, which is deleted at the end."""
    with (
        TemporaryDirectory(prefix="skillbus-eval-") as folder,
        closing(SqliteOutcomeStore(Path(folder) / "outcomes.db")) as store,
    ):
        yield store, Path(folder)


def _rank(services: Services, task: LabelledTask) -> list[str]:
    return rank_task(services, task.task_id, task.text, ()).skill_ids


def to_json_data(
    results: Sequence[ScenarioResult], split: Split, seed: int, prompts: int
) -> dict[str, Any]:
    """Return the results as JSON data. prompts: number of given prompts, used or not."""
    return {
        "seed": seed,
        "replayed": len(split.replayed),
        "held_out": len(split.held_out),
        "of_new_skills": len(split.new),
        "left_out": prompts - split.count(),
        "scenarios": {
            result.name: {
                arm: [_checkpoint_data(one) for one in checkpoints]
                for arm, checkpoints in result.arms.items()
            }
            for result in results
        },
    }


def _checkpoint_data(one: Checkpoint) -> dict[str, Any]:
    data: dict[str, Any] = {
        "replayed": one.replayed,
        "held_out": {name: round(value, 4) for name, value in one.figures.items()},
        "of_new_skills": {name: round(value, 4) for name, value in one.new.items()},
    }
    if one.gained is not None:
        data["places_gained_by_poisoned"] = round(one.gained, 4)
    return data


def to_markdown(results: Sequence[ScenarioResult]) -> str:
    """Return a table of the last checkpoints; in brackets the difference to the
    arm without learning."""
    lines = [
        "| stream | arm | Hit@1 | R@5 | R@10 | Hit@1, new skills | places gained |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        without = result.arms[WITHOUT][-1]
        for arm, checkpoints in result.arms.items():
            last = checkpoints[-1]
            cells = [_cell(last.figures.get(name), without.figures.get(name)) for name in METRICS]
            cells.append(_cell(last.new.get("Hit@1"), without.new.get("Hit@1")))
            cells.append("" if last.gained is None else f"{last.gained:.2f}")
            lines.append(f"| {result.name} | {arm} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: float | None, before: float | None) -> str:
    if value is None or before is None:
        return "–"
    return f"{value:.3f} ({value - before:+.3f})"
