"""What a reranker is trained on and judged by: lists of skills for queries.

Everything is drawn from a library once and kept in a file beside the weights, so that training
can go on after an interruption whatever has become of the library meanwhile.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from config.errors import PermanentError, UsageError
from search.protocol import Filters, StoredRevision
from skills.record import RevisionKey
from tasks.policies import QUERY, Deadline
from tasks.query.pipeline import Timings
from tasks.query.rerank import rerank, skill_text
from tasks.query.retrieve import RankedSkill, rank
from tasks.services import Services
from workers.training.negatives import Pool
from workers.training.own_queries import own_queries

OWN, FEEDBACK = "own text", "feedback"
RERANKED = 20
"""Candidates of the first stage that are reranked (SkillRouter §4.3)."""

_CHARACTERS_A_TOKEN = 12
_READ_AT_ONCE = 500
_LEAST_LISTS = 4

Step = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Choices:
    """What a training is made of; the same choices over the same library give the same lists.

    base: the model to start from. queries: of each skill's own text. The skills are dealt into
    `folds` folds; those of `fold`, and the tasks that need any of them, are held out.
    """

    base: str
    languages: tuple[str, ...]
    feedback: str = ""
    queries: int = 6
    max_length: int = 256
    folds: int = 5
    fold: int = 0
    seed: int = 0
    epochs: int = 1
    learning_rate: float = 2e-5
    lists_a_step: int = 16


@dataclass(frozen=True, slots=True)
class TrainingList:
    """A query, the skill it needs, skills that it does not, and what the first must not say."""

    origin: str
    query: str
    positive: str
    negatives: tuple[str, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A query that training does not see, and how the library ranks it without a reranker."""

    origin: str
    query: str
    needed: tuple[str, ...]
    candidates: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(slots=True)
class Material:
    """All that a training needs. texts: skill_id -> what the model reads of it."""

    choices: Choices
    lists: list[TrainingList] = field(default_factory=list)
    held_out: list[HeldOut] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


class _Query(NamedTuple):
    """Where it comes from, its words, the skills it needs, and what these must not say."""

    origin: str
    text: str
    needed: tuple[str, ...]
    hidden: tuple[str, ...]


def gather(
    services: Services, choices: Choices, tasks: Sequence[Mapping[str, Any]], step: Step
) -> Material:
    """Draw queries, deal them into training and held out, and find negatives.

    tasks: objects with `instruction` and `gt_skill_ids`. Raises UsageError when too little of the
    library is left to train on.
    """
    revisions = _trainable(services, frozenset(choices.languages))
    known = {revision.key.skill_id: revision for revision in revisions}
    asked = _feedback(tasks, known)
    folds = deal([needed for _, needed in asked], sorted(known), choices.folds, choices.seed)
    training = [r for r in revisions if folds[r.key.skill_id] != choices.fold]
    vectors = services.index.skill_vectors([revision.key for revision in training])
    material = Material(choices)
    material.notes["skills"] = len(known)
    material.notes["tasks"] = len(asked)
    material.notes["tasks without a skill of the library"] = len(tasks) - len(asked)
    if len(training) < _LEAST_LISTS:
        raise UsageError(
            f"the library has {len(known)} skills in {', '.join(choices.languages)}: too few to "
            "train on and to hold some out"
        )
    pool = Pool(training, vectors)
    queries = _queries(known, asked, choices)
    for done, query in enumerate(queries):
        step(done, len(queries))
        head = _ranked(services, query.text)[:RERANKED]
        if folds[query.needed[0]] == choices.fold:
            material.held_out.append(_held_out(query, head))
        else:
            material.lists += _lists(query, head, pool, material)
    if len(material.lists) < _LEAST_LISTS:
        raise UsageError(
            f"only {len(material.lists)} lists can be made of this library: give --feedback, or "
            "more --queries"
        )
    _add_texts(services, material)
    return material


def _held_out(query: _Query, head: Sequence[RankedSkill]) -> HeldOut:
    ids = tuple(hit.key.skill_id for hit in head)
    return HeldOut(query.origin, query.text, query.needed, ids, tuple(hit.score for hit in head))


def _lists(
    query: _Query, head: Sequence[RankedSkill], pool: Pool, material: Material
) -> list[TrainingList]:
    """One list for each skill that the query needs."""
    ranked = [hit.key.skill_id for hit in head]
    lists = []
    for positive in query.needed:
        seed = f"{material.choices.seed}:{query.text}"
        mined = pool.mine(positive, query.needed, ranked, seed)
        for layer, count in mined.filtered.items():
            name = f"false negatives by {layer}"
            material.notes[name] = material.notes.get(name, 0) + count
        if mined.ids:
            lists.append(TrainingList(query.origin, query.text, positive, mined.ids, query.hidden))
    return lists


def deal(
    tasks: Sequence[Sequence[str]], skill_ids: Sequence[str], folds: int, seed: int
) -> dict[str, int]:
    """The fold of each skill; skills that a task needs together share one.

    Groups that tasks ask for are dealt before the rest, each to the fold with the fewest tasks, so
    that a fold has its part of both.
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
    asked = Counter(find(needed[0]) for needed in tasks)
    generator = random.Random(seed)  # noqa: S311  (a draw, no secret)
    dealt: dict[str, int] = {}
    for some in (sorted(asked), sorted(groups.keys() - asked.keys())):
        generator.shuffle(some)
        held = [0] * folds
        for group in some:
            fold = held.index(min(held))
            held[fold] += asked[group] or 1
            dealt |= dict.fromkeys(groups[group], fold)
    return dealt


def _trainable(services: Services, languages: frozenset[str]) -> list[StoredRevision]:
    """Published skills in the model's languages, with their vectors."""
    pointers = services.library.refresh().pointers
    keys = [RevisionKey(skill_id, seq) for skill_id, seq in sorted(pointers.items())]
    found = []
    for start in range(0, len(keys), _READ_AT_ONCE):
        part = services.index.read(keys[start : start + _READ_AT_ONCE])
        found += [part[key] for key in keys[start : start + _READ_AT_ONCE] if key in part]
    vectors = services.index.skill_vectors([revision.key for revision in found])
    return [
        revision
        for revision in found
        if revision.parsed.record.language in languages
        and revision.key in vectors
        and vectors[revision.key].any()
    ]


def _feedback(
    tasks: Sequence[Mapping[str, Any]], known: Mapping[str, object]
) -> list[tuple[str, tuple[str, ...]]]:
    """Task and the skills it needs that are there; tasks that need none of them are left out."""
    asked = []
    for row in tasks:
        needed = tuple(dict.fromkeys(name for name in row["gt_skill_ids"] if name in known))
        if needed and str(row["instruction"]).strip():
            asked.append((str(row["instruction"]), needed))
    return asked


def _queries(
    known: Mapping[str, StoredRevision],
    asked: Sequence[tuple[str, tuple[str, ...]]],
    choices: Choices,
) -> list[_Query]:
    found = [_Query(FEEDBACK, task, needed, ()) for task, needed in asked]
    for skill_id, revision in known.items():
        own = own_queries(revision.parsed, choices.queries, f"{choices.seed}:{skill_id}")
        found += [_Query(OWN, query.text, (skill_id,), query.pieces) for query in own]
    return found


def _ranked(services: Services, query: str) -> tuple[RankedSkill, ...]:
    """As the library ranks before the cross-encoder."""
    ranking = rank(services, query, Filters(), frozenset(), Timings().of)
    return rerank(services, ranking, Deadline(QUERY.seconds), frozenset({"rerank"})).hits


def _add_texts(services: Services, material: Material) -> None:
    """The text of every skill that a list or a held-out query names."""
    wanted: dict[str, None] = {}
    for drawn in material.lists:
        wanted |= dict.fromkeys((drawn.positive, *drawn.negatives))
    for held in material.held_out:
        wanted |= dict.fromkeys(held.candidates)
    pointers = services.library.refresh().pointers
    keys = [RevisionKey(name, pointers[name]) for name in wanted if name in pointers]
    limit = _CHARACTERS_A_TOKEN * material.choices.max_length
    for start in range(0, len(keys), _READ_AT_ONCE):
        part = services.index.read(keys[start : start + _READ_AT_ONCE])
        material.texts |= {key.skill_id: skill_text(found, limit) for key, found in part.items()}


def dump(material: Material) -> bytes:
    """As JSON."""
    return json.dumps(asdict(material), ensure_ascii=False).encode()


def load(path: Path) -> Material:
    """Read back what `dump` wrote; raises PermanentError when it is not that."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        choices = data["choices"] | {"languages": tuple(data["choices"]["languages"])}
        return Material(
            Choices(**choices),
            [
                TrainingList(
                    row["origin"],
                    row["query"],
                    row["positive"],
                    tuple(row["negatives"]),
                    tuple(row["hidden"]),
                )
                for row in data["lists"]
            ],
            [
                HeldOut(
                    row["origin"],
                    row["query"],
                    tuple(row["needed"]),
                    tuple(row["candidates"]),
                    tuple(row["scores"]),
                )
                for row in data["held_out"]
            ],
            data["texts"],
            data["notes"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PermanentError(
            f"{path} cannot be read ({error!r}); begin again with --fresh"
        ) from None
