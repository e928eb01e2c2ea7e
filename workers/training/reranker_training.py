"""Trains a reranker with checkpoints, evaluates it on held-out queries, writes its card."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search.models.encoder import TRAINING_FILE
from search.models.reranker import CrossEncoderReranker
from search.protocol import Reranker
from tasks.query.rerank import combine_scores
from workers.library.user_files import write_atomically
from workers.training.checkpoint import CHECKPOINT
from workers.training.cross_encoder import CrossEncoderTrainer
from workers.training.training_set import FEEDBACK, HeldOutQuery, TrainingList, TrainingSet

TRAINING_SET_FILE = "training_set.json"
"""The training set of an unfinished training, in the folder of its checkpoint."""

_RESAMPLES = 2_000
_SCORING_BATCH = 8

ProgressCallback = Callable[[int, int], None]
Floats = npt.NDArray[np.float64]


def train(
    training_set: TrainingSet,
    folder: Path,
    threads: int,
    checkpoint_steps: int,
    step: ProgressCallback,
) -> list[float]:
    """Train and save the model in `folder`; returns the loss of each step of this run.

    Resumes from a checkpoint in the folder. A checkpoint is written every `checkpoint_steps` steps
    and on KeyboardInterrupt. step: called with the steps done and their total.
    """
    training_options = training_set.training_options
    batches = list(_batches(training_set))
    trainer = CrossEncoderTrainer(
        training_options.base,
        max_length=training_options.max_length,
        steps=len(batches),
        learning_rate=training_options.learning_rate,
        seed=training_options.seed,
        threads=threads,
        temperature=training_options.temperature,
    )
    trainer.load_checkpoint(folder)
    losses = []
    try:
        while trainer.steps_done < len(batches):
            step(trainer.steps_done, len(batches))
            lists = [
                _texts(training_set, training_list) for training_list in batches[trainer.steps_done]
            ]
            losses.append(trainer.step(lists))
            if trainer.steps_done % checkpoint_steps == 0:
                trainer.save_checkpoint(folder)
    except KeyboardInterrupt:
        trainer.save_checkpoint(folder)
        raise
    trainer.save_checkpoint(folder)
    trainer.save(folder)
    return losses


def _batches(training_set: TrainingSet) -> Iterator[list[TrainingList]]:
    """The lists of each step, in an order given by the seed."""
    training_options = training_set.training_options
    for epoch in range(training_options.epochs):
        order = list(training_set.lists)
        random.Random(f"{training_options.seed}:{epoch}").shuffle(order)  # noqa: S311  (not a secret)
        for start in range(0, len(order), training_options.batch_size):
            yield order[start : start + training_options.batch_size]


def _texts(training_set: TrainingSet, training_list: TrainingList) -> tuple[str, list[str]]:
    """The query and the texts of its list: the needed skill, without the hidden pieces, first."""
    positive = training_set.texts[training_list.positive]
    for piece in training_list.hidden:
        positive = positive.replace(piece, " ")
    return training_list.query, [
        positive,
        *(training_set.texts[other] for other in training_list.negatives),
    ]


def evaluate_on_held_out(
    training_set: TrainingSet, folder: Path, weight: float, step: ProgressCallback
) -> dict[str, Any]:
    """Metrics on held-out queries of the baseline, the reranker only, and both combined.

    weight: of the reranker in the combined score. The report has the metrics by origin of the
    queries, with the 95% interval of the combined ranking's gain in MRR over the baseline. `wins`:
    whether that interval lies above 0, on feedback if there is any, else on prompts of a language
    model, since lexical search does better on queries taken from a skill's own text.
    """
    reranker = CrossEncoderReranker(
        str(folder), max_length=training_set.training_options.max_length
    )
    found: dict[str, list[Floats]] = {}
    for done, held in enumerate(training_set.held_out):
        step(done, len(training_set.held_out))
        if held.candidates:
            found.setdefault(held.origin, []).append(
                _metrics_by_order(reranker, training_set, held, weight)
            )
    report: dict[str, Any] = {}
    wins = False
    for origin in sorted(found):
        values = np.array(found[origin])
        names = ("baseline", "reranker_only", "combined")
        report[origin] = {"queries": len(values)} | {
            name: dict(zip(("hit@1", "mrr", "ndcg"), row.round(4).tolist(), strict=True))
            for name, row in zip(names, values.mean(axis=0), strict=True)
        }
        low, high = bootstrap_interval(values[:, 2, 1] - values[:, 0, 1])
        report[origin]["mrr_gain"] = [round(low, 4), round(high, 4)]
        if origin == FEEDBACK or FEEDBACK not in found:
            wins = low > 0
    return {"held_out": report, "weight": weight, "wins": wins}


def _metrics_by_order(
    reranker: Reranker, training_set: TrainingSet, held: HeldOutQuery, weight: float
) -> Floats:
    """Metrics of one query, (3 orders, 3 metrics)."""
    texts = [training_set.texts.get(name, "") for name in held.candidates]
    parts = [
        reranker.score(held.query, texts[start : start + _SCORING_BATCH])
        for start in range(0, len(texts), _SCORING_BATCH)
    ]
    second = np.concatenate(parts).astype(np.float64)
    first = np.array(held.scores)
    orders = (-first, -second, -combine_scores(first, second, weight))
    return np.array(
        [_ranking_metrics(held, np.argsort(order, kind="stable").tolist()) for order in orders]
    )


def _ranking_metrics(held: HeldOutQuery, order: Sequence[int]) -> tuple[float, float, float]:
    """Hit@1, MRR and nDCG of an order of the candidates."""
    needed = set(held.needed)
    places = [n for n, place in enumerate(order) if held.candidates[place] in needed]
    if not places:
        return 0.0, 0.0, 0.0
    gain = sum(1 / np.log2(place + 2) for place in places)
    ideal = sum(1 / np.log2(place + 2) for place in range(min(len(needed), len(order))))
    return float(places[0] == 0), 1 / (places[0] + 1), float(gain / ideal)


def bootstrap_interval(gains: Floats) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean."""
    draws = np.random.default_rng(0).choice(gains, (_RESAMPLES, len(gains))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def write_model_card(
    training_set: TrainingSet, folder: Path, report: dict[str, Any]
) -> dict[str, Any]:
    """Write the card, with which the folder loads as a reranker, and delete the checkpoint."""
    training_options = training_set.training_options
    card = {
        "skillbus": version("skillbus"),
        "base": training_options.base,
        "languages": list(training_options.languages),
        "lists": len(training_set.lists),
        "choices": {
            "queries": training_options.queries,
            "prompts": training_options.prompts,
            "max_length": training_options.max_length,
            "list_size": training_options.list_size,
            "temperature": training_options.temperature,
            "fold": f"{training_options.fold} of {training_options.folds}",
            "seed": training_options.seed,
            "epochs": training_options.epochs,
            "learning_rate": training_options.learning_rate,
            "batch_size": training_options.batch_size,
            "feedback": training_options.feedback,
        },
        "notes": training_set.notes,
        **report,
    }
    content = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    write_atomically(folder / TRAINING_FILE, content.encode())
    for name in (CHECKPOINT, TRAINING_SET_FILE):
        (folder / name).unlink(missing_ok=True)
    return card
