"""Bundles in which one needed skill was exchanged for one much like it: is the clash seen?

R3-Skill asks whether a set of skills goes together for a task, which the relevance of each does not
say. A case is the set of skills that a task needs, with one exchanged for its alternative (one that
may stand for it under another name) or its sibling (one of the same kind for another case): the
skill with the most similar description that the task does not need. It is asked with and without
the skill that it replaces among the candidates (`with_both`). The clash is seen if the replacement
is left out, or is said to conflict with another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graph.records import LinkFeatures
from graph.skill_names import may_be_same_skill, normalise_name

MIN_COSINE = 0.3
"""Below this, descriptions are about different things, and the exchange would be no question of
compatibility but of relevance."""


@dataclass(frozen=True, slots=True)
class ExchangeCase:
    """candidates: the skills that the task needs, with `replacement` in the place of `exchanged`.
    kind: `alternative` or `sibling`."""

    task_id: str
    task: str
    candidates: tuple[str, ...]
    exchanged: str
    replacement: str
    kind: str
    cosine: float

    @property
    def with_both(self) -> tuple[str, ...]:
        """The candidates with both of the similar skills."""
        return (*self.candidates, self.exchanged)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was said about a case: the skills left out, and the pairs in conflict."""

    rejected: frozenset[str]
    conflicts: frozenset[tuple[str, str]] = frozenset()


def generate_cases(
    tasks: Iterable[Mapping[str, object]], library: Mapping[str, LinkFeatures]
) -> Iterator[ExchangeCase]:
    """One case for each skill that a task needs and that has a similar one in the library.

    tasks: rows with `task_id`, `instruction` and `gt_skill_ids`.
    """
    for task in tasks:
        wanted = task["gt_skill_ids"]
        assert isinstance(wanted, list)
        needed = [str(one) for one in wanted if one in library]
        for exchanged in needed:
            found = find_similar(library[exchanged], library, needed)
            if found is None:
                continue
            replacement, cosine = found
            names = (library[exchanged].name, library[replacement].name)
            alike = normalise_name(names[0]) == normalise_name(names[1])
            yield ExchangeCase(
                task_id=str(task["task_id"]),
                task=str(task["instruction"]),
                candidates=tuple(replacement if one == exchanged else one for one in needed),
                exchanged=exchanged,
                replacement=replacement,
                kind="alternative" if alike or may_be_same_skill(*names) else "sibling",
                cosine=round(cosine, 3),
            )


def find_similar(
    skill: LinkFeatures, library: Mapping[str, LinkFeatures], needed: Sequence[str]
) -> tuple[str, float] | None:
    """The skill with the most similar description that is not needed, ties by skill_id, and the
    cosine; None if none is similar enough."""
    best: tuple[float, str] | None = None
    for other_id, other in library.items():
        if other_id in needed:
            continue
        cosine = _dot(skill.description_terms, other.description_terms)
        if cosine >= MIN_COSINE and (best is None or (-cosine, other_id) < best):
            best = (-cosine, other_id)
    return None if best is None else (best[1], -best[0])


def is_clash_seen(case: ExchangeCase, judgement: Judgement) -> bool:
    """Whether the replacement is left out, or is in conflict with another candidate."""
    in_conflict = any(case.replacement in pair for pair in judgement.conflicts)
    return case.replacement in judgement.rejected or in_conflict


def _dot(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    small, large = sorted([one, other], key=len)
    return sum(weight * large[term] for term, weight in small.items() if term in large)
