"""Compares two kept runs: their measures, paired by prompt, and the prompts with other ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum, log2
from typing import Any

from config.errors import UsageError
from tasks.evaluations.model import EvaluatedPrompt, Evaluation, Measure
from workers.evaluation.intervals import bootstrap_interval

_Pair = tuple[EvaluatedPrompt, EvaluatedPrompt]
_PairKey = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """A measure of both runs, over the prompts that both have.

    change: after minus before, paired by prompt; significant if its interval excludes 0.
    """

    name: str
    before: float
    after: float
    change: Measure

    @property
    def is_significant(self) -> bool:
        """Whether the interval of the change excludes 0."""
        return self.change.low > 0 or self.change.high < 0


@dataclass(frozen=True, slots=True)
class PromptChange:
    """A prompt whose needed skills have other ranks. gain: change of the prompt's discounted
    cumulative gain. owner: as in `EvaluatedPrompt`."""

    prompt_id: str
    task: str
    needed: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: float
    first_before: str
    first_after: str
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The differences between two runs.

    paired: number of prompts with the same text and needed skills in both; unpaired: number
    of the others. better, worse: the largest difference first. settings: (name, before,
    after) of the conditions that differ, such as settings, version and budgets.
    """

    paired: int
    unpaired: int
    measures: tuple[MeasureChange, ...]
    better: tuple[PromptChange, ...]
    worse: tuple[PromptChange, ...]
    settings: tuple[tuple[str, Any, Any], ...]


def compare_runs(before: Evaluation, after: Evaluation) -> RunComparison:
    """Compare two runs, the earlier one first; raises UsageError for runs of different commands,
    whose ranks have different meanings."""
    kinds = before.summary.kind, after.summary.kind
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"a run of `eval {kinds[0]}` cannot be compared with one of `eval {kinds[1]}`; "
            "compare two runs of one command"
        )
    pairs = _pair(before.prompts, after.prompts)
    changes = [change for pair in pairs if (change := _compare_prompt(*pair)) is not None]
    return RunComparison(
        paired=len(pairs),
        unpaired=len(before.prompts) + len(after.prompts) - 2 * len(pairs),
        measures=tuple(_compare_measures(pairs)),
        better=_sort(one for one in changes if one.gain > 0),
        worse=_sort(one for one in changes if one.gain < 0),
        settings=tuple(_compare_settings(before, after)),
    )


def _sort(changes: Any) -> tuple[PromptChange, ...]:
    return tuple(sorted(changes, key=lambda one: (-abs(one.gain), one.prompt_id)))


def _pair(before: Sequence[EvaluatedPrompt], after: Sequence[EvaluatedPrompt]) -> list[_Pair]:
    """Return pairs of prompts that have the same text and need the same skills; of several such
    prompts, those with the same id."""
    known: defaultdict[_PairKey, dict[str, EvaluatedPrompt]] = defaultdict(dict)
    for one in before:
        known[_pair_key(one)][one.prompt_id] = one
    same = [known[_pair_key(one)].pop(one.prompt_id, None) for one in after]
    pairs = []
    for one, old in zip(after, same, strict=True):
        # Several prompts may be alike: a text is stored up to a length.
        others = known[_pair_key(one)]
        if old is None and others:
            old = others.pop(next(iter(others)))
        if old is not None:
            pairs.append((old, one))
    return pairs


def _pair_key(prompt: EvaluatedPrompt) -> _PairKey:
    return prompt.task, tuple(sorted(prompt.needed))


def _compare_measures(pairs: Sequence[_Pair]) -> list[MeasureChange]:
    names = dict.fromkeys(name for _, one in pairs for name in one.values)
    changes = []
    for name in names:
        values = [
            (old.values[name], new.values[name])
            for old, new in pairs
            if name in old.values and name in new.values
        ]
        if values:
            count = len(values)
            differences = tuple(new - old for old, new in values)
            changes.append(
                MeasureChange(
                    name,
                    sum(old for old, _ in values) / count,
                    sum(new for _, new in values) / count,
                    _find_interval(differences),
                )
            )
    return changes


@lru_cache(maxsize=64)
def _find_interval(differences: tuple[float, ...]) -> Measure:
    """Return the mean of differences with its interval.

    Cached, since 10,000 samples of thousands of prompts take a part of a second, and a comparison
    is viewed more than once.
    """
    if not any(differences):
        return Measure(0.0, 0.0, 0.0)
    return bootstrap_interval(differences)


def _compare_prompt(old: EvaluatedPrompt, new: EvaluatedPrompt) -> PromptChange | None:
    # By skill; purged skills have one id, so their ranks are sorted.
    before, after = (sorted(zip(one.needed, one.ranks, strict=True)) for one in (old, new))
    if before == after:
        return None
    places, ranks = (tuple(rank for _, rank in rows) for rows in (before, after))
    return PromptChange(
        new.prompt_id,
        new.task,
        tuple(skill_id for skill_id, _ in after),
        places,
        ranks,
        _discount(ranks) - _discount(places),
        old.found[0] if old.found else "",
        new.found[0] if new.found else "",
        new.owner,
    )


def _discount(ranks: Sequence[int]) -> float:
    """Return the discounted cumulative gain (Järvelin and Kekäläinen, TOIS 20, 2002)."""
    return fsum(1 / log2(rank + 1) for rank in ranks if rank)  # the same in any order


def _compare_settings(before: Evaluation, after: Evaluation) -> list[tuple[str, Any, Any]]:
    old, new = _flatten(before), _flatten(after)
    names = sorted(old.keys() | new.keys())
    return [(one, old.get(one), new.get(one)) for one in names if old.get(one) != new.get(one)]


def _flatten(run: Evaluation) -> dict[str, Any]:
    """Return the conditions of a run by name: version, size of the library, stages, budgets of
    bundles, settings."""
    summary = run.summary
    flat: dict[str, Any] = {
        "version": summary.version,
        "skills": summary.skills,
        "without": " ".join(summary.without),
    }
    if summary.kind == "bundles":
        budgets = {int(name.rpartition("@")[2]) for name in summary.measures}
        flat["budgets"] = " ".join(map(str, sorted(budgets)))
    for section, values in summary.settings.items():
        flat |= {f"{section}.{name}": value for name, value in values.items()}
    return flat
