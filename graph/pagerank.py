"""Reverse-aware personalised PageRank over the skill links (Graph of Skills, equations 2 to 4).

s = a p + (1 - a) T' s with T = RowNorm(sum over types r of l_r (T>_r + g_r T<_r)), where T>_r and
T<_r are the links of a type along and against their direction, each row-normalised, l_r the
weight of the type and g_r how far it carries against its direction. A skill without usable links
sends its mass back to the seeds, as the usual PageRank does with dangling nodes.

`personalised_pagerank` reads rows hop by hop, only where mass flows; `exact` solves the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from config.errors import UsageError
from graph.protocol import Adjacency, LinkType

ReadAdjacency = Callable[[Sequence[str]], Mapping[str, Adjacency]]
Floats = npt.NDArray[np.float64]

_SWEEP_SHARE = 0.25
_EXACT_TOLERANCE = 1e-12
_ROUNDING = 1e-12
_NO_LINKS = Adjacency((), {})
_COVERAGE = 0.8
_FEW = 32


def _type_weights() -> dict[LinkType, float]:
    return {
        LinkType.DEPENDENCY: 0.4,
        LinkType.WORKFLOW: 0.2,
        LinkType.SEMANTIC: 0.25,
        LinkType.ALTERNATIVE: 0.15,
    }


def _reverse_weights() -> dict[LinkType, float]:
    return {
        LinkType.DEPENDENCY: 1.0,
        LinkType.WORKFLOW: 0.5,
        LinkType.SEMANTIC: 1.0,
        LinkType.ALTERNATIVE: 0.1,
    }


@dataclass(frozen=True, slots=True)
class DiffusionSettings:
    """Constants of the diffusion, and the bounds of what one query may read.

    restart and reverse are those of Graph of Skills (its table 6 and its code), but for semantic
    links: likeness has no direction, it only stands in the list of one of the two. Types not
    listed, as conflict, carry nothing. tolerance: the L1 error at which reading and sweeping stop.
    """

    restart: float = 0.2
    type_weights: Mapping[LinkType, float] = field(default_factory=_type_weights)
    reverse_weights: Mapping[LinkType, float] = field(default_factory=_reverse_weights)
    tolerance: float = 1e-3
    max_hops: int = 6
    max_nodes: int = 600

    def __post_init__(self) -> None:
        if not 0 < self.restart < 1:
            raise UsageError(f"restart must lie between 0 and 1, not at {self.restart}")
        if self.max_hops < 1 or self.max_nodes < 1 or self.tolerance <= 0:
            raise UsageError("diffusion needs at least one hop and node, and a tolerance above 0")
        if any(
            weight < 0 for weight in (*self.type_weights.values(), *self.reverse_weights.values())
        ):
            raise UsageError("the weights of link types cannot be negative")


DEFAULT_DIFFUSION_SETTINGS = DiffusionSettings()


@dataclass(frozen=True, slots=True)
class DiffusionResult:
    """Where the mass of the seeds went.

    scores: a lower bound of each skill's exact score; exact scores sum to 1. residual_bound: the
    sum of what the bounds lack, which is the L1 error, to within floating point. hops: calls of
    `read_rows`; nodes_read: rows they gave.
    """

    scores: Mapping[str, float]
    residual_bound: float
    hops: int
    nodes_read: int


class TransitionRow(NamedTuple):
    """A row of T: the probability of each neighbour, and what is missing because it was cut.

    shares and leak sum to 1, or both are empty when no link of the skill carries mass.
    """

    shares: list[tuple[str, float]]
    leak: float


def transition_row(row: Adjacency, settings: DiffusionSettings) -> TransitionRow:
    """The row of T that a skill's links make; a neighbour may stand there more than once."""
    parts: dict[tuple[LinkType, bool], float] = {}
    for (kind, forward), total in row.totals.items():
        part = settings.type_weights.get(kind, 0.0)
        part *= 1.0 if forward else settings.reverse_weights.get(kind, 0.0)
        if part > 0 and total > 0:
            parts[kind, forward] = part
    whole = sum(parts.values())
    scale = {place: part / whole / row.totals[place] for place, part in parts.items()}
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
    settings: DiffusionSettings = DEFAULT_DIFFUSION_SETTINGS,
) -> DiffusionResult:
    """Forward push from the seeds, reading rows hop by hop where most mass waits.

    seeds: skill_id -> weight; those above 0 count, in proportion. read_rows gives the rows of
    the skills asked for, perhaps cut; one that it leaves out is taken to have no links. It is
    called once a hop, at most max_hops times and for at most max_nodes skills in all. What was
    cut or never read stays in the residual: the true scores are never further away than that.
    """
    push = _ForwardPush(_normalised(seeds), settings)
    hops = 0
    while hops < settings.max_hops and push.residual() > settings.tolerance:
        asked = push.next_unread(settings.max_hops - hops)
        if not asked:
            break
        rows = read_rows(asked)
        hops += 1
        for skill_id in asked:
            push.add_row(skill_id, transition_row(rows.get(skill_id, _NO_LINKS), settings))
        push.sweep()
    push.sweep(to_the_end=True)
    push.settle()
    return push.result(hops)


def _normalised(seeds: Mapping[str, float]) -> dict[str, float]:
    kept = {skill_id: weight for skill_id, weight in seeds.items() if weight > 0}
    total = sum(kept.values())
    return {skill_id: weight / total for skill_id, weight in kept.items()}


class _ForwardPush:
    """Estimates and residuals over the skills met so far, by index.

    Mass that reaches a skill without links is dropped here and the scores are scaled in the end:
    sending it back to the seeds only multiplies every score by the same number.
    """

    def __init__(self, seeds: Mapping[str, float], settings: DiffusionSettings) -> None:
        self._settings = settings
        self._index = {skill_id: place for place, skill_id in enumerate(seeds)}
        self._ids = list(seeds)
        self._estimate = np.zeros(len(seeds))
        self._waiting = np.array(list(seeds.values()), dtype=np.float64)
        self._read = np.zeros(len(seeds), dtype=bool)
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._shares: list[float] = []
        self._leaks: dict[int, float] = {}
        self._leaked = 0.0

    def residual(self) -> float:
        """Mass that is not settled: waiting anywhere, or gone where a row was cut."""
        return float(self._waiting.sum()) + self._leaked

    def next_unread(self, hops_left: int) -> list[str]:
        """The unread skills where most mass waits; later hops reach more skills than early ones."""
        room = self._settings.max_nodes - int(self._read.sum())
        unread = np.flatnonzero(~self._read & (self._waiting > 0))
        order = unread[np.lexsort((unread, -self._waiting[unread]))]
        covered = np.cumsum(self._waiting[order])
        if hops_left > 1 and len(order):
            enough = int(np.searchsorted(covered, _COVERAGE * covered[-1])) + 1
            order = order[: max(enough, _FEW)]
        return [self._ids[place] for place in order[:room]]

    def add_row(self, skill_id: str, row: TransitionRow) -> None:
        """Take in a row of T; an empty one drops what comes to its skill."""
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

        To the end: until it is below the tolerance wherever it can still move.
        """
        grow = len(self._ids) - len(self._read)
        self._read = np.pad(self._read, (0, grow))
        self._estimate = np.pad(self._estimate, (0, grow))
        self._waiting = np.pad(self._waiting, (0, grow))
        keep = 1.0 - self._settings.restart
        size = len(self._ids)
        moves = sparse.csr_array(
            (
                np.array(self._shares, dtype=np.float64) * keep,
                (np.array(self._targets, dtype=np.int32), np.array(self._sources, dtype=np.int32)),
            ),
            shape=(size, size),
        )
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
            self._estimate += self._settings.restart * moving
            self._leaked += float(leaks @ moving)
            self._waiting = self._waiting - moving + moves @ moving

    def settle(self) -> None:
        """Settle where it stands what mass certainly does: a restart's share of all that waits."""
        self._estimate += self._settings.restart * self._waiting
        self._waiting *= 1.0 - self._settings.restart

    def result(self, hops: int) -> DiffusionResult:
        """Lower bounds of the scores, and what they lack of 1."""
        settled = float(self._estimate.sum())
        whole = settled + self.residual()
        scores = {
            self._ids[place]: float(self._estimate[place] / whole)
            for place in np.flatnonzero(self._estimate)
        }
        bound = self.residual() / whole if whole > 0 else 0.0
        return DiffusionResult(scores, bound, hops, int(self._read.sum()))


class TransitionMatrix:
    """T over all skills that have a row, as a sparse matrix; rows given here must be whole."""

    def __init__(
        self,
        rows: Mapping[str, Adjacency],
        settings: DiffusionSettings = DEFAULT_DIFFUSION_SETTINGS,
    ) -> None:
        self._settings = settings
        self._index: dict[str, int] = {}
        sources, targets, shares = [], [], []
        for skill_id, row in rows.items():
            for other, share in transition_row(row, settings).shares:
                sources.append(self._place(skill_id))
                targets.append(self._place(other))
                shares.append(share)
        size = len(self._index)
        self._moves = sparse.csr_array(
            (np.array(shares, dtype=np.float64), (targets, sources)), shape=(size, size)
        )

    def exact_pagerank(self, seeds: Mapping[str, float]) -> dict[str, float]:
        """The solution of s = a p + (1 - a) T' s, skills with a score above 0; they sum to 1."""
        chosen = _normalised(seeds)
        outside = {skill_id for skill_id in chosen if skill_id not in self._index}
        waiting = np.zeros(len(self._index))
        for skill_id in chosen.keys() - outside:
            waiting[self._index[skill_id]] = chosen[skill_id]
        settled = np.zeros(len(self._index))
        restart = self._settings.restart
        while float(waiting.sum()) > _EXACT_TOLERANCE:
            settled += restart * waiting
            waiting = (1.0 - restart) * (self._moves @ waiting)
        alone = {skill_id: restart * chosen[skill_id] for skill_id in sorted(outside)}
        whole = float(settled.sum()) + sum(alone.values())
        names = list(self._index)
        reached = {names[place]: float(settled[place]) for place in np.flatnonzero(settled)}
        return {skill_id: score / whole for skill_id, score in (reached | alone).items()}

    def _place(self, skill_id: str) -> int:
        return self._index.setdefault(skill_id, len(self._index))


def exact_pagerank(
    seeds: Mapping[str, float],
    rows: Mapping[str, Adjacency],
    settings: DiffusionSettings = DEFAULT_DIFFUSION_SETTINGS,
) -> dict[str, float]:
    """`Transitions.exact` over these rows; the reference for `personalised_pagerank`."""
    return TransitionMatrix(rows, settings).exact_pagerank(seeds)
