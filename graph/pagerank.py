"""Personalised PageRank over typed links, in both directions (Graph of Skills, equations 2 to 4).

s = a p + (1 - a) T' s, with T = RowNorm(sum over types r of l_r (T>_r + g_r T<_r)). p: the seeds'
distribution; a: the restart; T>_r and T<_r: the links of type r along and against their direction,
each row-normalised; l_r: the weight of the type; g_r: its reverse weight. A skill without usable
links (a dangling node) sends its mass back to the seeds.

Rows of T are read hop by hop, only where mass flows (forward push); the residual is the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from config.settings import DiffusionSettings
from graph.records import Adjacency, LinkType

ReadAdjacency = Callable[[Sequence[str]], Mapping[str, Adjacency]]
Vector = npt.NDArray[np.float64]
DirectionWeights = Mapping[tuple[LinkType, bool], float]
"""By (type, forward), the share of a row's mass before it is normalised."""

_SWEEP_SHARE = 0.25
_ROUNDING = 1e-12
_NO_LINKS = Adjacency((), {})
_COVERAGE = 0.8
_MIN_ROWS_PER_HOP = 32


@dataclass(frozen=True, slots=True)
class DiffusionResult:
    """How the mass of the seeds is distributed.

    scores: a lower bound of each skill's exact score; exact scores sum to 1. inflow: the part of
    each score that arrived over links, without what the restart puts on a seed; skills that
    nothing arrived at are left out. residual_bound: the sum of what the scores lack, which is
    their L1 error, to within floating point. hops: calls of `read_rows`; nodes_read: rows read.
    """

    scores: Mapping[str, float]
    inflow: Mapping[str, float]
    residual_bound: float
    hops: int
    nodes_read: int


class DiffusionStep(NamedTuple):
    """Where the mass is after some moves along links; shares of 1 by skill, 0 is left out.

    settled: lower bounds of the scores so far. moving: what goes on over links from there, or waits
    because the links are not read. What both lack of 1 was lost where rows were cut.
    """

    settled: Mapping[str, float]
    moving: Mapping[str, float]


class TransitionRow(NamedTuple):
    """A row of T: the probability of each neighbour, and what is missing because it was cut.

    shares and leak sum to 1, or both are empty when no link of the skill carries mass.
    """

    shares: list[tuple[str, float]]
    leak: float


def direction_weights(settings: DiffusionSettings) -> DirectionWeights:
    """l_r along the links of each type and l_r g_r against them; other types carry nothing."""
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
    """The row of T that a skill's links make; it may hold a neighbour more than once."""
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
    """Forward push from the seeds, reading rows hop by hop where most mass waits.

    seeds: skill_id -> weight; those above 0 count, in proportion. read_rows gives the rows of
    the skills asked for, perhaps cut; one that it leaves out is taken to have no links. It is
    called once a hop, at most max_hops times and for at most max_nodes skills in all. What was
    cut or never read stays in the residual, which bounds the error. on_step: called with where the
    mass is at first, and after each move.
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
            push.add_row(skill_id, transition_row(rows.get(skill_id, _NO_LINKS), weights))
        push.sweep()
    push.sweep(to_the_end=True)
    return push.result(hops)


def normalise_seeds(seeds: Mapping[str, float]) -> dict[str, float]:
    """The seeds' distribution p: weights above 0, divided by their sum."""
    kept = {skill_id: weight for skill_id, weight in seeds.items() if weight > 0}
    total = sum(kept.values())
    return {skill_id: weight / total for skill_id, weight in kept.items()}


class _ForwardPush:
    """Mass that was pushed and mass that waits, over the skills met so far, by index.

    Mass that reaches a skill without links is dropped here and the scores are divided by the rest
    in the end: sending it back to the seeds only multiplies every score by the same number.
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
        """Mass that has not been pushed: waiting anywhere, or lost where a row was cut."""
        return float(self._waiting.sum()) + self._leaked

    def next_unread(self, hops_left: int) -> list[str]:
        """The unread skills where most mass waits; later hops reach more skills than early ones."""
        room = self._settings.max_nodes - int(self._read.sum())
        unread = np.flatnonzero(~self._read & (self._waiting > 0))
        order = unread[np.lexsort((unread, -self._waiting[unread]))]
        covered = np.cumsum(self._waiting[order])
        if hops_left > 1 and len(order):
            enough = int(np.searchsorted(covered, _COVERAGE * covered[-1])) + 1
            order = order[: max(enough, _MIN_ROWS_PER_HOP)]
        return [self._ids[place] for place in order[:room]]

    def add_row(self, skill_id: str, row: TransitionRow) -> None:
        """Add a row of T; at an empty one, all mass that arrives is dropped."""
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
        """Push what waits at skills that were read, until most of it waits at others.

        to_the_end: until it is below the tolerance wherever it can still move.
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
        """Lower bounds of the scores, and what they lack of 1."""
        held, residual = self._weigh()
        whole = float(held.sum()) + residual
        scores = self._by_skill(held, whole)
        inflow = self._by_skill(self._settings.restart * self._arrived, whole)
        bound = residual / whole if whole > 0 else 0.0
        return DiffusionResult(scores, inflow, bound, hops, int(self._read.sum()))

    def _weigh(self) -> tuple[Vector, float]:
        """What settled at each skill, and the sum of what the scores lack.

        Of all mass that a skill ever held, waiting mass included, a restart's share is its score.
        """
        restart = self._settings.restart
        held = restart * (self._seed_mass + self._arrived)
        residual = (1.0 - restart) * float(self._waiting.sum()) + self._leaked
        return held, residual

    def _by_skill(self, mass: Vector, whole: float) -> dict[str, float]:
        return {self._ids[place]: float(mass[place] / whole) for place in np.flatnonzero(mass)}
