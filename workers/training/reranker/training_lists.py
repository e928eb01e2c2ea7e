"""The training set of a reranker: training lists and held-out queries, built from a library.

It is built once and saved in the folder of the model, so that an interrupted training can be
resumed after the library has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from config.errors import UsageError
from search.protocol import StoredRevision
from skills.batches import batches
from skills.events import QueryAsked
from skills.record import RevisionKey
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_candidates
from tasks.query.ranking import RankedSkill
from tasks.query.rerank import cross_encoder_text, rerank
from tasks.services import Services
from workers.training.cloze_queries import make_cloze_queries
from workers.training.model_prompts import StoredPrompts, match_near_misses, read_prompts
from workers.training.negative_mining import FILTER_LAYERS, NegativeMiner
from workers.training.query_origins import LABELLED, MODEL_PROMPTS, OWN_TEXT
from workers.training.trainer import ProgressCallback, TrainingOptions
from workers.training.training_data import (
    REVISION_BATCH,
    assign_folds,
    check_sizes,
    choose_labelled,
    count_copies,
    read_trainable,
)

RERANKED = 20
"""Number of candidates of the first stage that are reranked (SkillRouter §4.3)."""

_CHARACTERS_PER_TOKEN = 12


@dataclass(frozen=True, slots=True)
class RerankerOptions(TrainingOptions):
    """Options of the training of a reranker.

    queries: number of queries generated from each skill's own text. max_length: tokens of a task
    and a skill together. list_size: skills in a training list, including the needed one.
    temperature: divides the scores of a list before the softmax.
    """

    queries: int = 6
    max_length: int = 256
    list_size: int = RERANKED
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class TrainingList:
    """A query with a needed skill and negatives.

    hidden: pieces of the query to remove from the text of the needed skill.
    """

    query: str
    positive: str
    negatives: tuple[str, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldOutQuery:
    """A query for evaluation, with the library's ranking without a reranker."""

    origin: str
    query: str
    needed: tuple[str, ...]
    candidates: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(slots=True)
class TrainingSet:
    """Lists, held-out queries and texts of a training.

    texts: the text of each skill for the cross-encoder, by skill id. notes: counts for the card.
    """

    options: RerankerOptions
    lists: list[TrainingList] = field(default_factory=list)
    held_out: list[HeldOutQuery] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


class _Query(NamedTuple):
    """A query with the skills it needs. hidden: see `TrainingList`. copies: number of each list."""

    origin: str
    text: str
    needed: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    copies: int = 1


def build_training_set(
    services: Services,
    options: RerankerOptions,
    tasks: Sequence[Mapping[str, Any]],
    step: ProgressCallback,
) -> TrainingSet:
    """Build queries, split them into training and held-out ones, and mine negatives.

    tasks: feedback, objects with `instruction`, `gt_skill_ids` and, optionally, `also` and
    `weight`; a task whose weight gives it no copy is left out. step: called with the queries done
    and their total. Raises UsageError if there are too few queries, or none is held out.
    """
    revisions = read_trainable(services, frozenset(options.languages))
    known = {revision.key.skill_id: revision for revision in revisions}
    without_copy = count_copies(tasks, options.seed).count(0)
    labelled = [
        _Query(LABELLED, one.text, one.needed, copies=one.copies)
        for one in choose_labelled(tasks, known, options.seed)
    ]
    needed = [query.needed for query in labelled]
    folds = assign_folds(needed, sorted(known), options.folds, options.seed)
    training = [r for r in revisions if folds[r.key.skill_id] != options.fold]
    vectors = services.index.get_skill_vectors([revision.key for revision in training])
    notes = {
        "skills": len(known),
        "tasks": len(labelled),
        "tasks that need no skill of this library": len(tasks) - without_copy - len(labelled),
        "tasks left out by their weight": without_copy,
    }
    training_set = TrainingSet(options, notes=notes)
    prompts = read_prompts(services, known, options.prompts)
    queries = labelled + _make_own_queries(known, options) + _make_prompt_queries(prompts)
    held_out = sum(folds[query.needed[0]] == options.fold for query in queries)
    check_sizes(options, len(known), len(queries) - held_out, held_out)
    miner = NegativeMiner(training, vectors)
    near_misses = _find_near_misses(services, prompts, training_set)
    for done, query in enumerate(queries):
        step(done, len(queries))
        candidates = _rank(services, query.text)[: 2 * max(RERANKED, options.list_size)]
        if folds[query.needed[0]] == options.fold:
            training_set.held_out.append(_make_held_out(query, candidates[:RERANKED]))
        else:
            missed = near_misses.get(query.text, ())
            training_set.lists += _make_lists(query, candidates, miner, options, missed)
    training_set.notes["candidates judged as negatives"] = miner.counts["candidates"]
    for layer in FILTER_LAYERS:
        training_set.notes[f"candidates filtered by {layer}"] = miner.counts[layer]
    if not training_set.lists:
        raise UsageError("no query has a skill to contrast with the needed one: add skills")
    _add_texts(services, training_set)
    return training_set


def _make_held_out(query: _Query, candidates: Sequence[RankedSkill]) -> HeldOutQuery:
    ids = tuple(hit.key.skill_id for hit in candidates)
    return HeldOutQuery(
        query.origin, query.text, query.needed, ids, tuple(hit.score for hit in candidates)
    )


def _make_lists(
    query: _Query,
    candidates: Sequence[RankedSkill],
    miner: NegativeMiner,
    options: RerankerOptions,
    near_misses: Sequence[str],
) -> list[TrainingList]:
    """Return the lists of a query: one for each needed skill, as often as the query is copied.

    A list has the needed skill and the first skills of the ranking that are not needed, `list_size`
    in all. near_misses: skills that, by a language model, such a query does not need. They take the
    last places, at most a fifth of them.
    """
    places = options.list_size - 1
    missed = miner.filter_ranking(query.needed, near_misses, places // 5)
    ranked = [hit.key.skill_id for hit in candidates if hit.key.skill_id not in missed]
    negatives = miner.filter_ranking(query.needed, ranked, places - len(missed)) + missed
    if not negatives:
        return []
    made = [
        TrainingList(query.text, positive, negatives, query.hidden) for positive in query.needed
    ]
    return made * query.copies


def _make_own_queries(
    known: Mapping[str, StoredRevision], options: RerankerOptions
) -> list[_Query]:
    found = []
    for skill_id, revision in known.items():
        own = make_cloze_queries(revision.parsed, options.queries, f"{options.seed}:{skill_id}")
        found += [_Query(OWN_TEXT, query.text, (skill_id,), query.pieces) for query in own]
    return found


def _make_prompt_queries(prompts: Mapping[str, StoredPrompts]) -> list[_Query]:
    return [
        _Query(MODEL_PROMPTS, text, (skill_id,))
        for skill_id, stored in prompts.items()
        for text in stored.prompts
    ]


def _find_near_misses(
    services: Services, prompts: Mapping[str, StoredPrompts], training_set: TrainingSet
) -> Mapping[str, Sequence[str]]:
    """Return the skills with a similar near miss, by prompt; they are noted in the training set."""
    if not prompts:
        return {}
    found = match_near_misses(services.encoder.get(), prompts)
    training_set.notes[MODEL_PROMPTS] = sum(len(one.prompts) for one in prompts.values())
    training_set.notes["near misses like prompts"] = sum(map(len, found.values()))
    return found


def _rank(services: Services, query: str) -> tuple[RankedSkill, ...]:
    """Return the ranking of the library without a reranker and without the memory, which holds the
    labels if they come from outcomes."""
    request = QueryAsked(task=query, without=("rerank", "memory"))
    context = QueryContext.create(services, request, apply_policy=False, degrade=False)
    return rerank(context, rank_candidates(context)).hits


def _add_texts(services: Services, training_set: TrainingSet) -> None:
    """Add the text of every skill in a list or held-out query."""
    wanted: dict[str, None] = {}
    for training_list in training_set.lists:
        wanted |= dict.fromkeys((training_list.positive, *training_list.negatives))
    for held in training_set.held_out:
        wanted |= dict.fromkeys(held.candidates)
    pointers = services.library.refresh().pointers
    keys = [RevisionKey(name, pointers[name]) for name in wanted if name in pointers]
    limit = _CHARACTERS_PER_TOKEN * training_set.options.max_length
    for some in batches(keys, REVISION_BATCH):
        training_set.texts |= {
            key.skill_id: cross_encoder_text(found, limit)
            for key, found in services.index.get_revisions(some).items()
        }
