"""Say what late interaction over section vectors would gain, leaving one skill out at a time.

usage: choose_late_interaction.py HOME TASKS.jsonl ...

HOME    a library whose candidates are paged (a task with one that is not is left out, and said)
TASKS   objects with `task_id`, `instruction` and `gt_skill_ids`, as `eval routing` reads them

For each file: Hit@1, MRR@10 and nDCG@10 of the ranking as it is, of every form and weight tried,
and of the form and weight chosen on the tasks that need none of the same skills (the figure to
believe).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from config.settings import Settings
from search.protocol import Filters, Vector
from tasks.query import Timings
from tasks.rerank import blended
from tasks.retrieval import rank
from tasks.services import Services
from workers.runtime import Runtime

DEPTHS = (10, 20, 30)
WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
Floats = npt.NDArray[np.float64]

FORMS: dict[str, Callable[[Vector, Vector, Vector], float]] = {
    "best section": lambda task, _, sections: float((sections @ task).max()),
    "best two": lambda task, _, sections: float(np.sort(sections @ task)[-2:].mean()),
    "best three": lambda task, _, sections: float(np.sort(sections @ task)[-3:].mean()),
    "each sentence's best": lambda _, parts, sections: float((sections @ parts.T).max(0).mean()),
    "both": lambda task, parts, sections: float(
        (sections @ task).max() + (sections @ parts.T).max(0).mean()
    ),
}


class Case(NamedTuple):
    """One task: scores of its candidates best first, (n,), late scores by form, what it needs."""

    needed: frozenset[str]
    ids: tuple[str, ...]
    first: Floats
    late: dict[str, Floats]


def load(services: Services, tasks: Path) -> Iterator[Case]:
    """Rank each task and score the sections of its candidates."""
    encoder = services.encoder.get()
    for row in map(json.loads, tasks.read_text(encoding="utf-8").splitlines()):
        ranking = rank(services, row["instruction"], Filters(), frozenset(), Timings().of)
        head = ranking.hits[: max(DEPTHS)]
        vectors = services.index.section_vectors([hit.key for hit in head])
        if ranking.vector is None or len(vectors) < len(head):
            print(f"  {row['task_id']}: {len(head) - len(vectors)} candidates are not paged")
            continue
        parts = encoder.encode(list(ranking.understanding.sentences) or [row["instruction"]])
        late = {
            name: np.array([form(ranking.vector, parts, vectors[hit.key]) for hit in head])
            for name, form in FORMS.items()
        }
        first = np.array([hit.score for hit in head])
        ids = tuple(hit.key.skill_id for hit in ranking.hits[:100])
        yield Case(frozenset(row["gt_skill_ids"]), ids, first, late)


def figures(case: Case, form: str, depth: int, weight: float) -> Floats:
    """Hit@1, MRR@10 and nDCG@10 of one task."""
    depth = min(depth, len(case.first))
    mixed = blended(case.first[:depth], case.late[form][:depth], weight)
    order = [*np.argsort(-mixed, kind="stable").tolist(), *range(depth, len(case.ids))]
    found = np.array([case.ids[place] in case.needed for place in order[:10]])
    places = np.flatnonzero(found)
    ideal = (1 / np.log2(np.arange(min(len(case.needed), 10)) + 2)).sum()
    return np.array(
        [
            float(found[:1].any()),
            1 / (places[0] + 1) if len(places) else 0.0,
            (1 / np.log2(places + 2)).sum() / ideal,
        ]
    )


def report(cases: list[Case]) -> None:
    """Print the ranking as it is, each choice, and the choice made without each task's skills."""
    choices = list(itertools.product(FORMS, DEPTHS, WEIGHTS))
    table = np.array([[figures(case, *choice) for choice in choices] for case in cases])
    print(f"{'as it is':>46}  {_line(table[:, 0].mean(0))}")
    means = table.mean(0)
    for form in FORMS:
        at = max(
            (n for n, choice in enumerate(choices) if choice[0] == form),
            key=lambda n: (means[n].sum(), -choices[n][2]),
        )
        print(f"{form:>24} depth {choices[at][1]} weight {choices[at][2]:<5}  {_line(means[at])}")
    held = np.zeros((len(cases), 3))
    for place, case in enumerate(cases):
        others = [n for n, other in enumerate(cases) if not other.needed & case.needed]
        totals = table[others].sum((0, 2))
        held[place] = table[place, int(totals.argmax())]
    print(f"{'chosen without the skills of the task':>46}  {_line(held.mean(0))}")
    gain = held[:, 1] - table[:, 0, 1]
    draws = np.random.default_rng(0).choice(gain, (2000, len(gain))).mean(1)
    low, high = np.quantile(draws, (0.025, 0.975))
    print(f"{'gain in MRR@10':>46}  {gain.mean():+.3f} ({low:+.3f} to {high:+.3f})")


def _line(values: Floats) -> str:
    return "  ".join(
        f"{name} {value:.3f}"
        for name, value in zip(("Hit@1", "MRR@10", "nDCG@10"), values, strict=True)
    )


def main(home: str, *files: str) -> None:
    """Report on each file of tasks."""
    settings = Settings().model_copy(update={"home": Path(home)})
    runtime = Runtime(settings, writable=False)
    try:
        for file in files:
            print(file)
            report(list(load(runtime.services, Path(file))))
    finally:
        runtime.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
