"""Trains a reranker with checkpoints, evaluates it on held-out queries, writes its card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search.models.reranker import CrossEncoderReranker
from search.protocol import Reranker
from tasks.query.rerank import combine_scores
from workers.evaluation.intervals import bootstrap_interval
from workers.training.query_origins import LABELLED, MODEL_PROMPTS, OWN_TEXT, has_won
from workers.training.reranker.cross_encoder import CrossEncoderTrainer
from workers.training.reranker.training_lists import HeldOutQuery, TrainingList, TrainingSet
from workers.training.trainer import (
    ProgressCallback,
    describe_training,
    order_batches,
)

_SCORING_BATCH = 8

Floats = npt.NDArray[np.float64]


def train(
    training_set: TrainingSet,
    folder: Path,
    threads: int,
    checkpoint_steps: int,
    step: ProgressCallback,
) -> list[float]:
    """Train and save the model in `folder`, from its checkpoint if there is one (`Trainer.run`).

    Returns the loss of each step of this run.
    """
    batches = order_batches(training_set.lists, training_set.options)
    trainer = CrossEncoderTrainer(training_set.options, steps=len(batches), threads=threads)
    return trainer.run(
        lambda number: [_texts(training_set, one) for one in batches[number]],
        folder,
        checkpoint_steps,
        step,
    )


def _texts(training_set: TrainingSet, training_list: TrainingList) -> tuple[str, list[str]]:
    """Return the query and the texts of its list, first the needed skill
    without the hidden pieces."""
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
    """Return metrics on held-out queries of the baseline, the reranker only, and both combined.

    weight: of the reranker in the combined score. The report has the metrics by origin of the
    queries, with the 95% interval of the combined ranking's gain in MRR over the baseline. `wins`:
    whether that interval lies above 0, on labelled prompts if there are any, else on prompts of a
    language model, else on own text, where lexical search is hard to beat.
    """
    # A relative path may be the name of a packaged model.
    reranker = CrossEncoderReranker(
        str(folder.absolute()), max_length=training_set.options.max_length
    )
    found: dict[str, list[Floats]] = {}
    for done, held in enumerate(training_set.held_out):
        step(done, len(training_set.held_out))
        if held.candidates:
            found.setdefault(held.origin, []).append(
                _metrics_by_order(reranker, training_set, held, weight)
            )
    report: dict[str, Any] = {}
    for origin in sorted(found):
        values = np.array(found[origin])
        names = ("baseline", "reranker_only", "combined")
        report[origin] = {"queries": len(values)} | {
            name: dict(zip(("hit@1", "mrr", "ndcg"), row.round(4).tolist(), strict=True))
            for name, row in zip(names, values.mean(axis=0), strict=True)
        }
        _, low, high = bootstrap_interval((values[:, 2, 1] - values[:, 0, 1]).tolist())
        report[origin]["mrr_gain"] = [round(low, 4), round(high, 4)]
    wins = has_won(report, (LABELLED, MODEL_PROMPTS, OWN_TEXT))
    return {"held_out": report, "weight": weight, "wins": wins}


def _metrics_by_order(
    reranker: Reranker, training_set: TrainingSet, held: HeldOutQuery, weight: float
) -> Floats:
    """Return the metrics of one query, (3 orders, 3 metrics)."""
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
    """Return Hit@1, MRR and nDCG of an order of the candidates."""
    needed = set(held.needed)
    places = [n for n, place in enumerate(order) if held.candidates[place] in needed]
    if not places:
        return 0.0, 0.0, 0.0
    gain = sum(1 / np.log2(place + 2) for place in places)
    ideal = sum(1 / np.log2(place + 2) for place in range(min(len(needed), len(order))))
    return float(places[0] == 0), 1 / (places[0] + 1), float(gain / ideal)


def make_reranker_card(training_set: TrainingSet, report: dict[str, Any]) -> dict[str, Any]:
    """Return the model card."""
    return describe_training(training_set) | {"lists": len(training_set.lists), **report}
