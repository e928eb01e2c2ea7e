"""Personalised PageRank over typed links, in both directions (Graph of Skills, equations 2 to 4).

s = a p + (1 - a) T' s, with T = RowNorm(sum over types r of l_r (T>_r + g_r T<_r)). p: the seeds'
distribution; a: the restart; T>_r and T<_r: the links of type r along and against their direction,
each row-normalised; l_r: the weight of the type; g_r: its reverse weight. A skill without usable
links (a dangling node) returns its mass to the seeds.

Rows of T are read hop by hop, only where mass flows (forward push); the residual is the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from config.settings import DiffusionSettings
from graph.records import NO_LINKS, Adjacency, LinkType

ReadAdjacency = Callable[[Sequence[str]], Mapping[str, Adjacency]]
Vector = npt.NDArray[np.float64]
DirectionWeights = Mapping[tuple[LinkType, bool], float]
"""(type, forward) -> share of a row's mass, before normalisation."""

_SWEEP_SHARE = 0.25
"""A sweep ends when the waiting mass at read skills is below this share of all other mass that was
not pushed."""

_ROUNDING = 1e-12
"""Missing shares up to this size are rounding errors, not a cut of the row."""

_COVERAGE = 0.8
"""Share of the waiting mass whose skills are read in a hop, except in the last."""

_MIN_ROWS_PER_HOP = 32
"""Minimum number of skills read in a hop, if so many wait."""


@dataclass(frozen=True, slots=True)
class DiffusionResult:
    """Final distribution of the seeds' mass.

    scores: lower bound of each skill's exact score; exact scores sum to 1. inflow: the part of each
    score that arrived over links, without the restart's mass on seeds; skills without inflow are
    left out. residual_bound: L1 error of the scores, which is their missing sum, up to rounding.
    hops: number of calls of `read_rows`. nodes_read: number of rows read.
    """

    scores: Mapping[str, float]
    inflow: Mapping[str, float]
    residual_bound: float
    hops: int
    nodes_read: int


class DiffusionStep(NamedTuple):
    """Distribution of the mass after some moves along links; shares of 1 by skill, without zeros.

    settled: lower bounds of the scores so far. moving: mass that will move on over links from the
    skill, or waits because its links are not read. The rest of 1 was lost at rows that were cut.
    """

    settled: Mapping[str, float]
    moving: Mapping[str, float]


class TransitionRow(NamedTuple):
    """A row of T.

    shares: probability of each neighbour. leak: missing probability if the row was cut. Both sum to
    1; if no link of the skill carries mass, shares is empty and leak is 0.
    """

    shares: list[tuple[str, float]]
    leak: float


def direction_weights(settings: DiffusionSettings) -> DirectionWeights:
    """Return l_r along the links of each type and l_r g_r against them; conflicts carry no mass."""
    weights = {
        LinkType.DEPENDENCY: (settings.dependency_weight, settings.dependency_reverse_weight),
        LinkType.WORKFLOW: (settings.workflow_weight, settings.workflow_reverse_weight),
        LinkType.SEMANTIC: (settings.semantic_weight, settings.semantic_reverse_weight),
        LinkType.ALTERNATIVE: (settings.alternative_weight, settings.alternative_reverse_weight),
        LinkType.USED_TOGETHER: (
            settings.used_together_weight,
            settings.used_together_reverse_weight,
        ),
    }
    along = {(kind, True): weight for kind, (weight, _) in weights.items()}
    against = {(kind, False): weight * reverse for kind, (weight, reverse) in weights.items()}
    return along | against


def transition_row(row: Adjacency, weights: DirectionWeights) -> TransitionRow:
    """Return the row of T of a skill's links; a neighbour may occur more than once."""
    parts: dict[tuple[LinkType, bool], float] = {}
    for direction, total in row.totals.items():
        part = weights.get(direction, 0.0)
        if part > 0 and total > 0:
            parts[direction] = part
    whole = sum(parts.values())
    scale = {direction: part / whole / row.totals[direction] for direction, part in parts.items()}
    shares = [
        (skill_id, scale[kind, forward] * weight)
        for skill_id, kind, forward, weight in row.neighbours
        if (kind, forward) in scale
    ]
    missing = 1.0 - sum(share for _, share in shares) if parts else 0.0
    return TransitionRow(shares, missing if missing > _ROUNDING else 0.0)


def personalised_pagerank(
    seeds: Mapping[str, float],
    read_rows: ReadAdjacency,
    settings: DiffusionSettings,
    on_step: Callable[[DiffusionStep], None] | None = None,
) -> DiffusionResult:
    """Compute personalised PageRank by forward push, reading rows hop by hop where most mass waits.

    seeds: skill_id -> weight; only weights above 0 count. read_rows: returns the rows of these
    skills, which may be cut; a missing row means no links. It is called once per hop, at most
    max_hops times and for at most max_nodes skills in total. Mass at cut and unread rows stays in
    the residual, which bounds the error. on_step: called with the distribution at first, and after
    each move.
    """
    push = _ForwardPush(normalise_seeds(seeds), settings, on_step)
    weights = direction_weights(settings)
    hops = 0
    while hops < settings.max_hops and push.residual() > settings.tolerance:
        unread = push.next_unread(settings.max_hops - hops)
        if not unread:
            break
        rows = read_rows(unread)
        hops += 1
        for skill_id in unread:
            push.add_row(skill_id, transition_row(rows.get(skill_id, NO_LINKS), weights))
        push.sweep()
    push.sweep(to_the_end=True)
    return push.result(hops)


def normalise_seeds(seeds: Mapping[str, float]) -> dict[str, float]:
    """Return the seeds' distribution p: weights above 0, divided by their sum."""
    kept = {skill_id: weight for skill_id, weight in seeds.items() if weight > 0}
    total = sum(kept.values())
    return {skill_id: weight / total for skill_id, weight in kept.items()}


class _ForwardPush:
    """State of the forward push: arrived and waiting mass of the skills found so far, by index.

    Mass that reaches a skill without links is dropped, and in the end the scores are divided by the
    remaining mass. This is equivalent to returning it to the seeds, which multiplies all scores by
    the same number.
    """

    def __init__(
        self,
        seeds: Mapping[str, float],
        settings: DiffusionSettings,
        on_step: Callable[[DiffusionStep], None] | None,
    ) -> None:
        self._settings = settings
        self._on_step = on_step
        self._index = {skill_id: place for place, skill_id in enumerate(seeds)}
        self._ids = list(seeds)
        self._seed_mass = np.array(list(seeds.values()), dtype=np.float64)
        self._arrived = np.zeros(len(seeds))
        self._waiting = self._seed_mass.copy()
        self._read = np.zeros(len(seeds), dtype=bool)
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._shares: list[float] = []
        self._leaks: dict[int, float] = {}
        self._leaked = 0.0
        self._report_step()

    def _report_step(self) -> None:
        if self._on_step is not None:
            held, residual = self._weigh()
            whole = float(held.sum()) + residual
            moving = (1.0 - self._settings.restart) * self._waiting
            self._on_step(DiffusionStep(self._by_skill(held, whole), self._by_skill(moving, whole)))

    def residual(self) -> float:
        """Return the mass that was not pushed: waiting mass, and mass lost at cut rows."""
        return float(self._waiting.sum()) + self._leaked

    def next_unread(self, hops_left: int) -> list[str]:
        """Return the unread skills with most waiting mass.

        All hops but the last skip skills with little mass, since later hops reach more skills.
        """
        room = self._settings.max_nodes - int(self._read.sum())
        unread = np.flatnonzero(~self._read & (self._waiting > 0))
        order = unread[np.lexsort((unread, -self._waiting[unread]))]
        covered = np.cumsum(self._waiting[order])
        if hops_left > 1 and len(order):
            enough = int(np.searchsorted(covered, _COVERAGE * covered[-1])) + 1
            order = order[: max(enough, _MIN_ROWS_PER_HOP)]
        return [self._ids[place] for place in order[:room]]

    def add_row(self, skill_id: str, row: TransitionRow) -> None:
        """Add a row of T; mass that arrives at an empty row is dropped."""
        source = self._index[skill_id]
        self._read[source] = True
        for other, share in row.shares:
            target = self._index.get(other)
            if target is None:
                target = self._index[other] = len(self._ids)
                self._ids.append(other)
            self._sources.append(source)
            self._targets.append(target)
            self._shares.append(share)
        if row.leak:
            self._leaks[source] = row.leak

    def sweep(self, *, to_the_end: bool = False) -> None:
        """Push waiting mass at read skills, until most mass waits at unread skills.

        to_the_end: push until the waiting mass at read skills is below a tenth of the tolerance.
        """
        size = len(self._ids)
        new = (0, size - len(self._read))
        self._read = np.pad(self._read, new)
        self._seed_mass = np.pad(self._seed_mass, new)
        self._arrived = np.pad(self._arrived, new)
        self._waiting = np.pad(self._waiting, new)
        keep = 1.0 - self._settings.restart
        shares = np.array(self._shares, dtype=np.float64) * keep
        sources = np.array(self._sources, dtype=np.intp)
        targets = np.array(self._targets, dtype=np.intp)
        leaks = np.zeros(size)
        leaks[list(self._leaks)] = list(self._leaks.values())
        leaks *= keep
        while True:
            moving = np.where(self._read, self._waiting, 0.0)
            mass = float(moving.sum())
            others = self.residual() - mass
            floor = self._settings.tolerance * 0.1
            if mass <= (floor if to_the_end else max(floor, _SWEEP_SHARE * others)):
                return
            self._leaked += float(leaks @ moving)
            arriving = np.bincount(targets, shares * moving[sources], minlength=size)
            self._arrived += arriving
            self._waiting = self._waiting - moving + arriving
            self._report_step()

    def result(self, hops: int) -> DiffusionResult:
        """Return the lower bounds of the scores, with their distance from 1."""
        held, residual = self._weigh()
        whole = float(held.sum()) + residual
        scores = self._by_skill(held, whole)
        inflow = self._by_skill(self._settings.restart * self._arrived, whole)
        bound = residual / whole if whole > 0 else 0.0
        return DiffusionResult(scores, inflow, bound, hops, int(self._read.sum()))

    def _weigh(self) -> tuple[Vector, float]:
        """Return the score of each skill before normalisation, and the missing sum of scores.

        The score is the restart's share of all mass that a skill ever held, waiting mass included.
        """
        restart = self._settings.restart
        held = restart * (self._seed_mass + self._arrived)
        residual = (1.0 - restart) * float(self._waiting.sum()) + self._leaked
        return held, residual

    def _by_skill(self, mass: Vector, whole: float) -> dict[str, float]:
        return {self._ids[place]: float(mass[place] / whole) for place in np.flatnonzero(mass)}
