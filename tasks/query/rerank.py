"""Rerank: reorder the best candidates by better scores.

Two steps, each for a number of candidates. Late interaction uses the cosine of the task with the
nearest of a skill's sections; a cross-encoder reads the task together with name, description and
body within a time budget. The cross-encoder scores all its candidates or none: if it would not
finish in time, it is skipped, and the bundle's `degraded` names it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from search.protocol import StoredRevision, Vector
from search.scoring.score_candidates import predict_linearly
from skills.passages import section_texts
from skills.record import RevisionKey
from tasks.query.context import QueryContext
from tasks.query.process_state.durations import Clock, TimeBudget, TimeBudgetExceededError
from tasks.query.ranking import RankedSkill, Ranking

Scores = npt.NDArray[np.float64]

_CHARACTERS_PER_TOKEN = 4
"""Characters of a token, by which the time of a batch is estimated."""

_FITTED = 200
"""Number of first candidates by which the cosines of candidates without section vectors are
predicted."""

_MIN_MEASURED = 10
"""Minimum number of candidates for a prediction of section cosines by regression."""

_REASONS = {
    "late": "its sections are close in meaning",
    "rerank": "the cross-encoder scores it higher",
}


class StepSkippedError(Exception):
    """A step that did not run; the message is the reason for the bundle."""


def rerank(context: QueryContext, ranking: Ranking, clock: Clock = time.monotonic) -> Ranking:
    """Return the ranking after the steps that are on, `late` and `rerank`.

    A skipped step leaves the order unchanged and is recorded in the degradations. Raises
    PermanentError if the cross-encoder of the settings cannot be loaded.
    """
    settings = context.services.settings.reranker
    late_weight = settings.late_weight * max(1.0 - 2.0 * ranking.long_task_weight, 0.0)
    if late_weight > 0 and context.is_on("late"):
        cosines = measure_section_cosines(context, ranking, settings.late_candidates)
        # Candidates in a language that the encoder does not know have no cosine.
        head = [hit.key for hit in ranking.hits[: settings.late_candidates]]
        scores = {key: cosines[key] for key in head if key in cosines}
        ranking = replace(ranking, hits=reorder_hits(ranking.hits, scores, late_weight, "late"))
    if context.services.reranker is not None and settings.weight > 0 and context.is_on("rerank"):
        try:
            scores = _cross_encoder(context, ranking, ranking.hits[: settings.candidates], clock)
        except (StepSkippedError, TimeBudgetExceededError) as reason:
            context.degradations.add(f"rerank was skipped: {reason}")
        else:
            hits = reorder_hits(ranking.hits, scores, settings.weight, "rerank")
            ranking = replace(ranking, hits=hits)
    return ranking


def measure_section_cosines(
    context: QueryContext, ranking: Ranking, count: int
) -> dict[RevisionKey, float]:
    """Return the section cosine of each of the first `count` candidates that has any vector.

    Only their sections are compared: a thousand candidates have some ten thousand sections.
    """
    if ranking.vector is None:
        return {}
    index, keys = context.services.index, [hit.key for hit in ranking.hits]
    head, others = keys[:count], keys[count:_FITTED]
    measured = index.get_section_cosines(head, ranking.vector)
    if all(key in measured for key in head if key in ranking.cosines):
        return measured
    measured |= index.get_section_cosines(others, ranking.vector)
    known = {key: ranking.cosines[key] for key in (*head, *others) if key in ranking.cosines}
    return complete_section_cosines(measured, known)


def complete_section_cosines(
    measured: Mapping[RevisionKey, float],
    cosines: Mapping[RevisionKey, tuple[float, float]],
) -> dict[RevisionKey, float]:
    """Return the section cosine of every candidate that has any vector.

    measured: of the candidates whose sections have vectors. cosines: of the task with the two skill
    vectors. A skill that was just changed has no section vectors for a while. Its section cosine is
    predicted from that of its better skill vector, by the least-squares line over the candidates
    with both, so that no constant depends on the model. With fewer than _MIN_MEASURED of these, all
    candidates get the cosine of their better skill vector.
    """
    better = {key: max(pair) for key, pair in cosines.items()}
    missing = better.keys() - measured.keys()
    if not missing:
        return dict(measured)
    both = [key for key in measured if key in better]
    if len(both) < _MIN_MEASURED:
        return better
    known = np.array([better[key] for key in both])
    section = np.array([measured[key] for key in both])
    predicted = predict_linearly(known, section, np.array([better[key] for key in missing]))
    return dict(measured) | dict(zip(missing, predicted.tolist(), strict=True))


def reorder_hits(
    hits: Sequence[RankedSkill], scores: Mapping[RevisionKey, float], weight: float, name: str
) -> tuple[RankedSkill, ...]:
    """Return the hits in the order of their combined scores.

    Only hits with a second score change places, among themselves; a hit that holds a place for a
    file format stays. The scores of the places stay too, so that their spread keeps its meaning;
    the gain or loss of a hit is its part `name`.
    """
    places = [at for at, hit in enumerate(hits) if hit.key in scores and not hit.named_format]
    if len(places) < 2:
        return tuple(hits)
    first = np.array([hits[at].score for at in places])
    mixed = combine_scores(first, np.array([scores[hits[at].key] for at in places]), weight)
    order = sorted(range(len(places)), key=lambda n: (-mixed[n], places[n]))
    result = list(hits)
    for at, source in zip(places, order, strict=True):
        hit = hits[places[source]]
        gain = hits[at].score - hit.score
        why = (*hit.why, _REASONS[name]) if at < places[source] else hit.why
        result[at] = replace(hit, score=hits[at].score, parts={**hit.parts, name: gain}, why=why)
    return tuple(result)


def combine_scores(first: Scores, second: Scores, weight: float) -> Scores:
    """Return first + weight z(second) over the same candidates, each (n,).

    The first keeps its scale, so that a clear lead stays clear. The second may have any scale: it
    is standardised to mean 0 and deviation 1. Equal second scores add nothing.
    """
    return first + weight * _standardize(second)


def _standardize(scores: Scores) -> Scores:
    spread = float(scores.std())
    return (scores - scores.mean()) / spread if spread > 1e-9 else np.zeros_like(scores)


def _cross_encoder(
    context: QueryContext, ranking: Ranking, head: Sequence[RankedSkill], clock: Clock
) -> dict[RevisionKey, float]:
    """Return the model's scores; candidates in a language that it does not support keep their
    place."""
    services = context.services
    if services.reranker is None or not head:
        return {}
    settings = services.settings.reranker
    reranker = services.reranker.get()
    task = ranking.understanding
    if task.language not in reranker.languages:
        raise StepSkippedError(f"the reranker does not know the task's language, {task.language}")
    seconds = min(settings.milliseconds / 1000, context.deadline.remaining())
    budget = TimeBudget(services.rerank_duration, seconds, clock)
    max_characters = _CHARACTERS_PER_TOKEN * settings.max_length
    revisions = services.index.get_revisions([hit.key for hit in head])
    vectors: dict[RevisionKey, Vector] = {}
    if ranking.vector is not None:
        vectors = services.index.get_section_vectors(list(revisions))
    texts = [
        (key, cross_encoder_text(revision, 3 * max_characters, ranking.vector, vectors.get(key)))
        for key, revision in revisions.items()
        if revision.parsed.record.language in reranker.languages
    ]
    # Texts of similar length share a batch: all texts of a batch are padded to its longest.
    texts.sort(key=lambda pair: -len(pair[1]))
    units = [float(min(len(task.text) + len(text), max_characters)) for _, text in texts]
    scores: dict[RevisionKey, float] = {}
    for batch in budget.iter_batches(texts, units, settings.batch_size, trial_size=1):
        values = reranker.score(task.text, [text for _, text in batch])
        scores |= {key: float(value) for (key, _), value in zip(batch, values, strict=True)}
    return scores


def cross_encoder_text(
    revision: StoredRevision,
    limit: int,
    task: Vector | None = None,
    sections: Vector | None = None,
) -> str:
    """Return the text of a skill for a cross-encoder: `name | description | body`, cut at `limit`
    characters.

    With the vectors of the task, (d,), and of the sections, (n, d), the body is its sections by
    their nearness to the task, since a model reads only some hundred words. Without them it is the
    body from its start.
    """
    parsed = revision.parsed
    head = f"{parsed.record.name} | {parsed.record.description} | "
    if task is None or sections is None or len(sections) != len(parsed.sections):
        return (head + parsed.text(parsed.body_line, len(parsed.lines)))[:limit]
    nearest = np.argsort(-np.vecdot(sections, task), kind="stable").tolist()
    texts = section_texts(parsed)
    return (head + "\n".join(texts[place].strip() for place in nearest))[:limit]
