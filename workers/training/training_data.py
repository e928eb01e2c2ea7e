"""What models are trained on: skills of a library, labelled queries, and their folds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from config.errors import UsageError
from search.models.model_families import with_mixtures
from search.protocol import StoredRevision
from skills.batches import batches
from skills.record import RevisionKey
from tasks.services import Services
from workers.evaluation.predictions import right_skills
from workers.quantities import format_count
from workers.training.trainer import TrainingOptions

REVISION_BATCH = 500
_MIN_TRAINED = 4


class LabelledQuery(NamedTuple):
    """A labelled query. needed: the skills that serve it. copies: how often it is trained on."""

    text: str
    needed: tuple[str, ...]
    copies: int


def read_trainable(services: Services, languages: frozenset[str]) -> list[StoredRevision]:
    """Return published skills in the model's languages that have vectors."""
    languages = with_mixtures(languages)
    pointers = services.library.refresh().pointers
    keys = [RevisionKey(skill_id, seq) for skill_id, seq in sorted(pointers.items())]
    found = []
    for some in batches(keys, REVISION_BATCH):
        stored = services.index.get_revisions(some)
        found += [stored[key] for key in some if key in stored]
    vectors = services.index.get_skill_vectors([revision.key for revision in found])
    return [
        revision
        for revision in found
        if revision.parsed.record.language in languages
        and revision.key in vectors
        and vectors[revision.key].any()
    ]


def choose_labelled(
    tasks: Sequence[Mapping[str, Any]], known: Collection[str], seed: int
) -> list[LabelledQuery]:
    """Return the tasks that have copies and need a skill in `known`, without their other skills.

    tasks: objects with `instruction`, `gt_skill_ids` and, optionally, `also` and `weight`.
    """
    queries = (
        LabelledQuery(
            str(task["instruction"]).strip(),
            tuple(name for name in right_skills(task) if name in known),
            copies,
        )
        for task, copies in zip(tasks, count_copies(tasks, seed), strict=True)
    )
    return [one for one in queries if one.text and one.needed and one.copies]


def count_copies(tasks: Sequence[Mapping[str, Any]], seed: int) -> list[int]:
    """Return how often each task is in a training set.

    It is the weight of the task, rounded up or down at random so that it is right on average; it
    may be 0, and is 1 without a weight. The result is the same for the same seed and text; tasks
    with the same text differ by their order.
    """
    copies = []
    same_text = Counter[str]()
    for task in tasks:
        text, weight = str(task["instruction"]).strip(), float(task.get("weight", 1.0))
        whole = int(weight)
        drawn = random.Random(f"{seed}:copies:{same_text[text]}:{text}").random() < weight - whole
        same_text[text] += 1
        copies.append(whole + drawn)
    return copies


def check_sizes(options: TrainingOptions, skills: int, trained: int, held_out: int) -> None:
    """Raise UsageError if too few queries can be trained on, or none is held out.

    skills: number of skills in the languages of the model.
    """
    if trained < _MIN_TRAINED or not held_out:
        raise UsageError(
            f"too few queries: {format_count(skills, 'skill')} in {', '.join(options.languages)} "
            f"give {trained} to train on (at least {_MIN_TRAINED} are needed) and {held_out} in "
            f"the held-out part {options.fold} of {options.folds} (at least 1): give --feedback, "
            "add skills, or choose fewer --folds or another --fold"
        )


def assign_folds(
    tasks: Sequence[Sequence[str]], skill_ids: Sequence[str], folds: int, seed: int
) -> dict[str, int]:
    """Return the fold of each skill; skills needed by the same task share a fold.

    Groups of skills with tasks are assigned first, each to the fold with the fewest tasks, then the
    others, so that every fold gets a share of both.
    """
    leader = {skill_id: skill_id for skill_id in skill_ids}

    def find(skill_id: str) -> str:
        while leader[skill_id] != skill_id:
            skill_id = leader[skill_id]
        return skill_id

    for needed in tasks:
        for other in needed[1:]:
            leader[find(other)] = find(needed[0])
    groups: dict[str, list[str]] = {}
    for skill_id in skill_ids:
        groups.setdefault(find(skill_id), []).append(skill_id)
    labelled_tasks = Counter(find(needed[0]) for needed in tasks)
    generator = random.Random(seed)
    assigned: dict[str, int] = {}
    for leaders in (sorted(labelled_tasks), sorted(groups.keys() - labelled_tasks.keys())):
        generator.shuffle(leaders)
        held = [0] * folds
        for group in leaders:
            fold = held.index(min(held))
            held[fold] += labelled_tasks[group] or 1
            assigned |= dict.fromkeys(groups[group], fold)
    return assigned
