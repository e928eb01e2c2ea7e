"""Say what late interaction over section vectors gains, leaving one skill out at a time.

usage: python -m tests.bench.choose_late_interaction TASKS.jsonl HOME ...

TASKS   objects with `task_id`, `instruction` and `gt_skill_ids`, as `eval routing` reads them
HOME    libraries whose candidates are paged

For each library: Hit@1, MRR@10, nDCG@10 and R@10 of the ranking as it is and of each form by
weight; then, form and weight chosen over all the libraries on the tasks that need none of the same
skills, the figures of the task left out (the ones to believe), with the gain in MRR@10 and its
95% interval over draws of whole skills.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from config.settings import Settings
from search.protocol import Vector
from skills.events import QueryAsked
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_candidates
from tasks.query.rerank import combine_scores
from tasks.services import Services
from workers.backend.embedded import EmbeddedBackend
from workers.evaluation.predictions import read_jsonl

DEPTH = 30
WEIGHTS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0)
NAMES = ("Hit@1", "MRR@10", "nDCG@10", "R@10")
Floats = npt.NDArray[np.float64]

MAX_SENTENCES = 64
_FENCE = re.compile(r"^(```++|~~~++)[^\n]*+\n.*?(?:^\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+(?=[\"'(\[]?[A-Z0-9`])|(?<=[。！？；])|\n\s*(?:[-*+•]|\d+[.)])?\s*"
)


def late_interaction_score(task: Vector, sections: Vector) -> float:
    """Return the cosine of a task, (d,), with the nearest of a skill's sections, (n, d)."""
    return float((sections @ task).max())


FORMS: dict[str, Callable[[Vector, Vector, Vector], float]] = {
    "best section": lambda task, _, sections: late_interaction_score(task, sections),
    "best two": lambda task, _, sections: float(np.sort(sections @ task)[-2:].mean()),
    "each sentence's best": lambda _, parts, sections: float((sections @ parts.T).max(0).mean()),
}


class Case(NamedTuple):
    """One task: its candidates best first with their scores, (n,), and what it needs.

    late: by form, the scores of those of the first DEPTH that have sections, (places,).
    """

    needed: frozenset[str]
    ids: tuple[str, ...]
    first: Floats
    places: list[int]
    late: dict[str, Floats]


def split_sentences(text: str) -> list[str]:
    """Return sentences and list items in order, without code blocks; at most MAX_SENTENCES."""
    parts = (part.strip() for part in _SENTENCE_END.split(_FENCE.sub("\n", text)))
    return list(dict.fromkeys(part for part in parts if len(part) > 2))[:MAX_SENTENCES]


def load(services: Services, tasks: Path) -> Iterator[Case]:
    """Rank each task and score the sections of its candidates."""
    encoder = services.encoder.get()
    for row in read_jsonl(tasks, ("task_id", "instruction", "gt_skill_ids")):
        if not row["gt_skill_ids"]:
            continue
        request = QueryAsked(task=row["instruction"])
        ranking = rank_candidates(QueryContext.create(services, request, apply_policy=False))
        head = ranking.hits[:DEPTH]
        vectors = services.index.get_section_vectors([hit.key for hit in head])
        places = [at for at, hit in enumerate(head) if len(vectors.get(hit.key, ()))]
        if ranking.vector is None:
            continue
        parts = encoder.encode_queries(
            split_sentences(ranking.understanding.text) or [row["instruction"]]
        )
        late = {
            name: np.array([form(ranking.vector, parts, vectors[head[at].key]) for at in places])
            for name, form in FORMS.items()
        }
        ids = tuple(hit.key.skill_id for hit in ranking.hits[:100])
        first = np.array([hit.score for hit in head])
        yield Case(frozenset(row["gt_skill_ids"]), ids, first, places, late)


def figures(case: Case, form: str, weight: float) -> Floats:
    """NAMES of one task."""
    mixed = combine_scores(case.first[case.places], case.late[form], weight)
    order = list(range(len(case.ids)))
    for at, source in zip(case.places, np.argsort(-mixed, kind="stable").tolist(), strict=True):
        order[at] = case.places[source]
    places = np.flatnonzero([case.ids[place] in case.needed for place in order[:10]])
    ideal = (1 / np.log2(np.arange(min(len(case.needed), 10)) + 2)).sum()
    first = float(places[0]) if len(places) else np.inf
    gain = float((1 / np.log2(places + 2)).sum())
    return np.array([first == 0, 1 / (first + 1), gain / ideal, len(places) / len(case.needed)])


def report(libraries: dict[str, list[Case]]) -> None:
    """Print each choice for each library, and what is chosen without each task's skills."""
    choices = list(itertools.product(FORMS, WEIGHTS))
    table = np.array(
        [
            [[figures(case, *choice) for choice in choices] for case in cases]
            for cases in libraries.values()
        ]
    )
    for at, home in enumerate(libraries):
        print(home)
        print(f"{'as it is':>34}  {_line(table[at, :, 0].mean(0))}")
        for (form, weight), values in zip(choices, table[at].mean(0), strict=True):
            if weight:
                print(f"{form:>28} {weight:<5}  {_line(values)}")
    cases = next(iter(libraries.values()))
    held = np.zeros((len(libraries), len(cases), len(NAMES)))
    for place, case in enumerate(cases):
        others = [n for n, other in enumerate(cases) if not other.needed & case.needed]
        # What the weight 0 gives is the same for each form: the first stands for all.
        best = int(table[:, others].sum((0, 1, 3)).argmax())
        held[:, place] = table[:, place, best]
    print("chosen without the skills of the task")
    skills = np.array([min(case.needed) for case in cases])
    for at, home in enumerate(libraries):
        gain = held[at, :, 1] - table[at, :, 0, 1]
        low, high = _interval(gain, skills)
        print(f"{home:>34}  {_line(held[at].mean(0))}")
        print(f"{'gain in MRR@10':>34}  {gain.mean():+.3f} ({low:+.3f} to {high:+.3f})")


def _interval(gain: Floats, skills: npt.NDArray[np.str_]) -> tuple[float, float]:
    generator = np.random.default_rng(0)
    names = np.unique(skills)
    groups = [gain[skills == name] for name in names]
    draws = [
        np.concatenate([groups[n] for n in generator.integers(0, len(groups), len(groups))]).mean()
        for _ in range(4000)
    ]
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def _line(values: Floats) -> str:
    return "  ".join(f"{name} {value:.3f}" for name, value in zip(NAMES, values, strict=True))


def main(tasks: str, *homes: str) -> None:
    """Report on each library."""
    libraries = {}
    for home in homes:
        settings = Settings().model_copy(update={"home": Path(home)})
        backend = EmbeddedBackend(settings, writable=False)
        try:
            libraries[home] = list(load(backend.services, Path(tasks)))
        finally:
            backend.stop()
    report(libraries)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
