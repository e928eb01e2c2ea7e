"""Rerank: the best candidates read again and put in a better order (spec §5.3).

Two stages, each over so many candidates and in so many milliseconds. Late interaction compares
the task's vector with those of a skill's sections; a cross-encoder reads the task together with
name, description and body. A stage either orders all its candidates or none: what it would not
finish in its time it does not begin, and the ranking says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from search.protocol import StoredRevision, Vector
from skills.record import RevisionKey
from tasks.policies import Deadline
from tasks.query.retrieve import RankedSkill, Ranking
from tasks.query.throughput import Clock, Throughput, TimeBudget, TimeBudgetExceededError
from tasks.services import Services

Scores = npt.NDArray[np.float64]

_BATCH = 10
_CHARACTERS_A_TOKEN = 4

_WHY = {
    "late": "its sections are close in meaning",
    "rerank": "read together with the task it fits",
}


class StageSkippedError(Exception):
    """A stage that did not run, with the reason for the bundle."""


def rerank(
    services: Services,
    ranking: Ranking,
    deadline: Deadline,
    without: frozenset[str] = frozenset(),
    clock: Clock = time.monotonic,
) -> Ranking:
    """The ranking after the stages that are on; `without` leaves out `late` or `rerank`.

    A stage that is skipped leaves the order as it was and is named in `degraded`. Raises
    PermanentError when the cross-encoder that the settings name cannot be loaded.
    """
    settings = services.settings.reranker
    short = settings.late_weight * max(1.0 - 2.0 * ranking.long_task_weight, 0.0)
    stages: list[tuple[str, float, int, _ScoreStage]] = []
    if short > 0 and "late" not in without:
        stages.append(("late", short, settings.late_candidates, _late_interaction))
    if services.reranker is not None and settings.weight > 0 and "rerank" not in without:
        stages.append(("rerank", settings.weight, settings.candidates, _cross_encoder))
    for name, weight, count, read in stages:
        try:
            scores = read(services, ranking, ranking.hits[:count], deadline, clock)
        except (StageSkippedError, TimeBudgetExceededError) as reason:
            degraded = (*ranking.degraded, f"{name} was skipped: {reason}")
            ranking = replace(ranking, degraded=degraded)
        else:
            ranking = replace(ranking, hits=reorder_hits(ranking.hits, scores, weight, name))
    return ranking


def reorder_hits(
    hits: Sequence[RankedSkill], scores: Mapping[RevisionKey, float], weight: float, name: str
) -> tuple[RankedSkill, ...]:
    """The hits with those that have a score in the order of both scores, `combined`.

    They change places among themselves: who has no score, and who holds a place for a file
    format, stays. The scores of the places stay too, so that their spread means what it meant;
    what a hit gained or lost is its part `name`.
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
        why = (*hit.why, _WHY[name]) if at < places[source] else hit.why
        result[at] = replace(hit, score=hits[at].score, parts={**hit.parts, name: gain}, why=why)
    return tuple(result)


def combine_scores(first: Scores, second: Scores, weight: float) -> Scores:
    """first + weight z(second) over the same candidates, each (n,).

    The score so far keeps its scale, so that a clear lead stays one; the second may be of any
    make, and is brought to mean 0 and deviation 1. Scores that are all alike add nothing.
    """
    return first + weight * _standardize(second)


def _standardize(scores: Scores) -> Scores:
    spread = float(scores.std())
    return (scores - scores.mean()) / spread if spread > 1e-9 else np.zeros_like(scores)


def late_interaction_score(task: Vector, sections: Vector) -> float:
    """The cosine of a task, (d,), to the nearest of a skill's sections, (n, d)."""
    return float((sections @ task).max())


def _late_interaction(
    services: Services,
    ranking: Ranking,
    head: Sequence[RankedSkill],
    deadline: Deadline,
    clock: Clock,
) -> dict[RevisionKey, float]:
    """Late scores of all candidates that can have section vectors.

    Candidates in a language that the encoder does not know, and those without text, never have
    any and keep their place. As long as another one waits to be paged the stage does not run:
    otherwise it would favour, or punish, the skills that happen to be done.
    """
    if ranking.vector is None:
        return {}
    milliseconds = services.settings.reranker.late_milliseconds
    budget = _budget(services.throughputs.late, milliseconds, deadline, clock)
    found: dict[RevisionKey, Vector] = {}
    keys = [hit.key for hit in head]
    for batch in budget.iter_batches(keys, [1.0] * len(keys), _BATCH, _BATCH):
        found |= services.index.get_section_vectors(batch)
    waiting = _count_unembedded(services, [key for key in keys if key not in found])
    if waiting:
        raise StageSkippedError(f"{waiting} of {len(keys)} candidates have no section vectors yet")
    return {
        key: late_interaction_score(ranking.vector, vectors)
        for key, vectors in found.items()
        if len(vectors)
    }


def _count_unembedded(services: Services, keys: Sequence[RevisionKey]) -> int:
    """How many of these revisions without section vectors will have some."""
    if not keys:
        return 0
    languages = services.encoder.get().languages
    entries = services.graph.get_entries([key.skill_id for key in keys])
    return sum(entry.language in languages and not entry.embedded for entry in entries)


def _cross_encoder(
    services: Services,
    ranking: Ranking,
    head: Sequence[RankedSkill],
    deadline: Deadline,
    clock: Clock,
) -> dict[RevisionKey, float]:
    """The model's scores; candidates in a language that it does not know keep their place."""
    if services.reranker is None or not head:
        return {}
    settings = services.settings.reranker
    reranker = services.reranker.get()
    task = ranking.understanding
    if task.language not in reranker.languages:
        raise StageSkippedError(
            f"{reranker.model} does not know the task's language, {task.language}"
        )
    budget = _budget(services.throughputs.rerank, settings.milliseconds, deadline, clock)
    most = _CHARACTERS_A_TOKEN * settings.max_length
    revisions = services.index.get_revisions([hit.key for hit in head])
    texts = [
        (key, cross_encoder_text(revision, 3 * most))
        for key, revision in revisions.items()
        if revision.parsed.record.language in reranker.languages
    ]
    # Texts of like length share a batch, since all of one are padded to its longest.
    texts.sort(key=lambda pair: -len(pair[1]))
    units = [float(min(len(task.text) + len(text), most)) for _, text in texts]
    scores: dict[RevisionKey, float] = {}
    for batch in budget.iter_batches(texts, units, settings.batch_size, trial_size=1):
        values = reranker.score(task.text, [text for _, text in batch])
        scores |= {key: float(value) for (key, _), value in zip(batch, values, strict=True)}
    return scores


def cross_encoder_text(revision: StoredRevision, limit: int) -> str:
    """What a cross-encoder reads of a skill: `name | description | body`, cut at `limit`."""
    parsed = revision.parsed
    body = parsed.text(parsed.body_line, len(parsed.lines))
    return f"{parsed.record.name} | {parsed.record.description} | {body}"[:limit]


def _budget(
    throughput: Throughput, milliseconds: int, deadline: Deadline, clock: Clock
) -> TimeBudget:
    return TimeBudget(throughput, min(milliseconds / 1000, deadline.remaining()), clock)


_ScoreStage = Callable[
    [Services, Ranking, Sequence[RankedSkill], Deadline, Clock], dict[RevisionKey, float]
]
