"""Builds the training set of an encoder from a library's own text and labelled prompts.

Without prompts, a skill's own text gives queries: the requests that it quotes, pieces of its text
for the text without them (the inverse cloze task), and its description for its sections.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from config.settings import OPTIONAL_STAGES
from search.protocol import StoredRevision
from search.skill_analysis import skill_texts
from skills.events import QueryAsked
from skills.passages import section_texts
from skills.record import ParsedSkill
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_candidates
from tasks.services import Services
from workers.training.cloze_queries import make_cloze_queries
from workers.training.encoder.encoder_pairs import EncoderOptions, EncoderTrainingSet, TrainingPair
from workers.training.encoder.trigger_phrases import find_trigger_phrases
from workers.training.model_prompts import read_prompts
from workers.training.negative_mining import FILTER_LAYERS, NEAREST, NegativeMiner
from workers.training.query_origins import LABELLED, MODEL_PROMPTS, OWN_TEXT, SECTIONS, TRIGGERS
from workers.training.trainer import ProgressCallback
from workers.training.training_data import (
    assign_folds,
    check_sizes,
    choose_labelled,
    read_trainable,
)

_MAX_HELD_OUT = 1_500
_POOL = 2_000
"""Number of random skills that held-out queries rank, in addition to those they need."""

_MIN_SECTION_CHARACTERS, _MAX_SECTION_CHARACTERS = 40, 1_500
_SECTION_EVERY = 3


def build_encoder_training_set(
    services: Services,
    options: EncoderOptions,
    tasks: Sequence[Mapping[str, Any]],
    step: ProgressCallback,
) -> EncoderTrainingSet:
    """Make pairs, hold a part of the repositories out, and mine negatives for the rest.

    tasks: labelled prompts, objects with `instruction`, `gt_skill_ids` and, optionally, `also` and
    `weight`; a task whose weight gives it no copy is left out. step: called with the pairs done and
    their total. Raises UsageError if there are too few pairs, or none is held out.
    """
    revisions = read_trainable(services, frozenset(options.languages))
    known = {revision.key.skill_id: revision for revision in revisions}
    labelled = [
        (TrainingPair(LABELLED, one.text, one.needed), one.copies)
        for one in choose_labelled(tasks, known, options.seed)
    ]
    found = labelled + [(pair, 1) for pair in _make_other_pairs(services, known, options)]
    repositories = name_repositories(list(known), options.repository)
    held = _hold_out([pair for pair, _ in labelled], repositories, options)
    training_set = EncoderTrainingSet(options)
    training_set.notes = {
        "skills": len(known),
        "repositories": len(set(repositories.values())),
        "repositories held out": len(held),
    }
    kept = [one for one in revisions if repositories[one.key.skill_id] not in held]

    def is_held_out(pair: TrainingPair) -> bool:
        return any(repositories[name] in held for name in pair.needed)

    trained = [one for one in found if not is_held_out(one[0])]
    training_set.held_out = [pair for pair, _ in found if is_held_out(pair)]
    check_sizes(options, len(known), len(trained), len(training_set.held_out))
    miner = NegativeMiner(kept, services.index.get_skill_vectors([one.key for one in kept]))
    for done, (pair, copies) in enumerate(trained):
        step(done, len(trained))
        mined = _add_negatives(services, pair, miner, options.seed)
        training_set.pairs += [mined] * copies
    judged = max(1, miner.counts["candidates"])
    training_set.filtered = {
        layer: round(miner.counts[layer] / judged, 4) for layer in FILTER_LAYERS
    }
    training_set.duplicates = miner.find_duplicates()
    _choose_held_out(training_set, sorted(known), repositories)
    _add_texts(training_set, known)
    return training_set


def name_repositories(skill_ids: Sequence[str], pattern: str) -> dict[str, str]:
    """Return the repository of each skill: the match of a pattern in its id, else its source and
    the first folder below it; every skill by itself if that gives one repository for all."""
    if pattern:
        matches = {name: re.search(pattern, name) for name in skill_ids}
        return {name: match.group() if match else name for name, match in matches.items()}
    named = {name: name.partition("/")[0] if "/" in name else name for name in skill_ids}
    return named if len(set(named.values())) > 1 else {name: name for name in skill_ids}


def _hold_out(
    labelled: Sequence[TrainingPair], repositories: Mapping[str, str], options: EncoderOptions
) -> set[str]:
    """Return the held-out repositories; those that a query needs together stay together."""
    together = [[repositories[name] for name in pair.needed] for pair in labelled]
    names = sorted(set(repositories.values()))
    folds = assign_folds(together, names, options.folds, options.seed)
    return {name for name, fold in folds.items() if fold == options.fold}


# -- pairs
def _make_other_pairs(
    services: Services, known: Mapping[str, StoredRevision], options: EncoderOptions
) -> list[TrainingPair]:
    """Return the pairs of a language model's prompts, and of the skills' own text."""
    pairs = []
    for skill_id, stored in read_prompts(services, known, options.prompts).items():
        pairs += [TrainingPair(MODEL_PROMPTS, text, (skill_id,)) for text in stored.prompts]
    for skill_id, revision in known.items():
        pairs += make_own_pairs(skill_id, revision, options)
    return pairs


def make_own_pairs(
    skill_id: str, revision: StoredRevision, options: EncoderOptions
) -> list[TrainingPair]:
    """Return at most `options.pairs` pairs from a skill's own text, the same for the same seed.

    Trigger phrases come first. Of the rest, one in three has the description as query for a
    section, the others have a piece of the text as query for the description.
    """
    seed = f"{options.seed}:{skill_id}"
    phrases = list(find_trigger_phrases(revision.parsed))
    random.Random(seed).shuffle(phrases)
    pairs = [
        TrainingPair(TRIGGERS, phrase, (skill_id,), _text_without(revision.parsed, (phrase,)))
        for phrase in phrases[: options.pairs]
    ]
    left = options.pairs - len(pairs)
    sections = _section_pairs(skill_id, revision, seed)
    pairs += [pair for pair, _ in zip(sections, range(left // _SECTION_EVERY), strict=False)]
    cloze = make_cloze_queries(revision.parsed, options.pairs - len(pairs), seed)
    return pairs + [
        TrainingPair(
            OWN_TEXT, query.text, (skill_id,), _text_without(revision.parsed, query.pieces)
        )
        for query in cloze
    ]


def _section_pairs(skill_id: str, revision: StoredRevision, seed: str) -> Iterator[TrainingPair]:
    """Yield the description as query for sections of the body, in an order given by the seed."""
    description = revision.parsed.record.description
    texts = [
        text[:_MAX_SECTION_CHARACTERS]
        for text in section_texts(revision.parsed)
        if len(text) >= _MIN_SECTION_CHARACTERS
    ]
    random.Random(seed).shuffle(texts)
    for text in texts if description else ():
        yield TrainingPair(SECTIONS, description, (skill_id,), text)


def _text_without(parsed: ParsedSkill, pieces: Sequence[str]) -> str:
    """Return a skill's text without pieces of its description, which the cut of a long description
    would otherwise divide."""
    description = parsed.record.description
    for piece in pieces:
        description = description.replace(piece, " ")
    record = replace(parsed.record, description=description)
    return skill_texts(replace(parsed, record=record))[0]


def _add_negatives(
    services: Services, pair: TrainingPair, miner: NegativeMiner, seed: int
) -> TrainingPair:
    lexical = _rank_by_words(services, pair.query)[:NEAREST]
    positive = pair.needed[0]
    mined = miner.mine_negatives(positive, pair.needed, lexical, f"{seed}:{pair.query}")
    return TrainingPair(pair.origin, pair.query, pair.needed, pair.text, mined)


def _rank_by_words(services: Services, query: str) -> list[str]:
    """Return the library's ranking by BM25 alone."""
    request = QueryAsked(task=query, without=OPTIONAL_STAGES)
    context = QueryContext.create(services, request, apply_policy=False, degrade=False)
    return [hit.key.skill_id for hit in rank_candidates(context).hits]


# -- held-out queries and texts
def _choose_held_out(
    training_set: EncoderTrainingSet, known: Sequence[str], repositories: Mapping[str, str]
) -> None:
    """Keep some of the held-out pairs, labelled pairs first, and draw the pool."""
    generator = random.Random(training_set.options.seed)
    order = {LABELLED: 0, MODEL_PROMPTS: 1, TRIGGERS: 2}
    pairs = [pair for pair in training_set.held_out if pair.origin != SECTIONS]
    generator.shuffle(pairs)
    pairs.sort(key=lambda pair: order.get(pair.origin, 3))
    training_set.held_out = pairs[:_MAX_HELD_OUT]
    needed = {name for pair in training_set.held_out for name in pair.needed}
    drawn = generator.sample(list(known), min(_POOL, len(known)))
    training_set.pool = tuple(sorted(needed.union(drawn)))
    training_set.repositories = {name: repositories[name] for name in sorted(needed)}


def _add_texts(training_set: EncoderTrainingSet, known: Mapping[str, StoredRevision]) -> None:
    wanted = dict.fromkeys(training_set.pool)
    for pair in training_set.pairs:
        wanted |= dict.fromkeys((pair.needed[0], *pair.negatives))
    training_set.texts = {name: skill_texts(known[name].parsed)[0] for name in wanted}
