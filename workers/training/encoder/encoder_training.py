"""Trains an encoder with checkpoints, evaluates it on held-out repositories, writes its card."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.settings import EncoderSettings
from search.models.load_models import load_encoder
from search.protocol import Encoder
from workers.evaluation.intervals import bootstrap_groups
from workers.training.encoder.bi_encoder import Batch, BiEncoderTrainer
from workers.training.encoder.encoder_pairs import EncoderTrainingSet, TrainingPair
from workers.training.query_origins import LABELLED, MODEL_PROMPTS, TRIGGERS, has_won
from workers.training.trainer import (
    ProgressCallback,
    describe_training,
    order_batches,
    write_training_card,
)

METRICS = ("hit@1", "r@5", "r@10", "r@50", "mrr")

Floats = npt.NDArray[np.float64]


def train_encoder(
    training_set: EncoderTrainingSet,
    folder: Path,
    threads: int,
    checkpoint_steps: int,
    step: ProgressCallback,
) -> list[float]:
    """Train and save the model in `folder`, from its checkpoint if there is one (`Trainer.run`).

    Returns the loss of each step of this run.
    """
    options = training_set.options
    batches = order_batches(training_set.pairs, options)
    batches = [batch for batch in batches if len(batch) > 1] or batches  # one pair has no negatives
    trainer = BiEncoderTrainer(options, steps=len(batches), threads=threads)
    losses = trainer.run(
        lambda number: make_batch(training_set, batches[number], number),
        folder,
        checkpoint_steps,
        step,
    )
    training_set.prompts = {"query": trainer.prompts.query, "document": trainer.prompts.passage}
    # Without a card the folder does not load as an encoder, which the evaluation needs.
    write_training_card(folder, make_encoder_card(training_set, {}))
    return losses


def make_batch(
    training_set: EncoderTrainingSet, pairs: Sequence[TrainingPair], number: int
) -> Batch:
    """Return the queries, their texts and some of their hard negatives, drawn by seed and step.

    Texts of needed skills and of their duplicates are masked for the query.
    """
    options = training_set.options
    generator = random.Random(f"{options.seed}:negatives:{number}")
    names = [pair.needed[0] for pair in pairs]
    texts = [training_set.text_of(pair) for pair in pairs]
    for pair in pairs:
        drawn = generator.sample(pair.negatives, min(options.negatives, len(pair.negatives)))
        names += drawn
        texts += [training_set.texts[name] for name in drawn]
    masked = np.zeros((len(pairs), len(texts)), dtype=np.bool_)
    for row, pair in enumerate(pairs):
        serving = {*pair.needed}.union(*(training_set.duplicates.get(n, ()) for n in pair.needed))
        masked[row] = [name in serving for name in names]
        masked[row, row] = False
    return Batch([pair.query for pair in pairs], texts, masked)


# -- evaluation
def evaluate_encoder(
    training_set: EncoderTrainingSet, folder: Path, step: ProgressCallback
) -> dict[str, Any]:
    """Return metrics of the base and of the trained model on queries of held-out repositories.

    Each query ranks the pool's texts by cosine. Metrics are by origin of the queries, with the
    95% interval of the gain in MRR, resampled by repository. `wins`: whether that interval
    lies above 0, on labelled prompts if there are any, else on prompts of a language model,
    else on trigger phrases.
    """
    # A relative path may be the name of a packaged model.
    trained = EncoderSettings(model=str(folder.absolute()))
    measured = []
    for number, settings in enumerate((training_set.options.get_base_settings(), trained)):
        step(number, 2)
        measured.append(_measure(load_encoder(settings), training_set))
    origins = np.array([pair.origin for pair in training_set.held_out])
    groups = [training_set.repositories[pair.needed[0]] for pair in training_set.held_out]
    report: dict[str, Any] = {}
    for origin in sorted(set(origins.tolist())):
        rows = np.flatnonzero(origins == origin)
        gains = measured[1][rows, -1] - measured[0][rows, -1]
        low, high = _interval_by_group(gains, [groups[row] for row in rows])
        report[origin] = {"queries": len(rows), "repositories": len({groups[r] for r in rows})} | {
            name: dict(zip(METRICS, values[rows].mean(axis=0).round(4).tolist(), strict=True))
            for name, values in zip(("base", "trained"), measured, strict=True)
        }
        report[origin]["mrr_gain"] = [round(low, 4), round(high, 4)]
    wins = has_won(report, (LABELLED, MODEL_PROMPTS, TRIGGERS))
    return {"held_out": report, "pool": len(training_set.pool), "wins": wins}


def _measure(encoder: Encoder, training_set: EncoderTrainingSet) -> Floats:
    """Return the metrics of each held-out query, (queries, 5).

    Of skills with the cosine of the needed one, half count as before it: a model for which all
    texts are alike finds nothing.
    """
    pairs = training_set.held_out
    if not pairs:
        return np.zeros((0, len(METRICS)))
    places = {name: place for place, name in enumerate(training_set.pool)}
    skills = encoder.encode_texts([training_set.texts[name] for name in training_set.pool])
    own = iter(encoder.encode_texts([pair.text for pair in pairs if pair.text]))
    queries = encoder.encode_queries([pair.query for pair in pairs])
    rows = []
    for pair, query in zip(pairs, queries, strict=True):
        cosines = skills @ query
        needed = [places[name] for name in pair.needed if name in places]
        best = float(next(own) @ query) if pair.text else float(cosines[needed].max())
        cosines[needed] = -2.0
        place = float((cosines > best).sum() + (cosines == best).sum() / 2)
        rows.append([*(float(place < limit) for limit in (1, 5, 10, 50)), 1.0 / (place + 1)])
    return np.array(rows)


def _interval_by_group(gains: Floats, groups: Sequence[str]) -> tuple[float, float]:
    """Return the 95% interval of the mean gain over resampled groups."""
    found = bootstrap_groups(
        np.column_stack([gains, np.ones(len(gains))]), groups, lambda sums: sums[:, 0] / sums[:, 1]
    )
    return found.low, found.high


def make_encoder_card(training_set: EncoderTrainingSet, report: dict[str, Any]) -> dict[str, Any]:
    """Return the model card."""
    return describe_training(training_set) | {
        "prompts": training_set.prompts,
        "pairs": Counter(pair.origin for pair in training_set.pairs),
        "filtered": training_set.filtered,
        **report,
    }
