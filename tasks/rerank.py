"""Rerank: the best candidates of a ranking, read again and put in a better order (spec §5.3)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from skills.record import RevisionKey
from tasks.retrieval import Ranking
from tasks.services import Services


def rerank(services: Services, ranking: Ranking) -> Ranking:
    """A cross-encoder over the best candidates, within its milliseconds (spec §5.3)."""
    if services.reranker is None or not ranking.hits:
        return ranking
    settings = services.settings.reranker
    reranker = services.reranker.get()
    head = ranking.hits[: settings.candidates]
    revisions = services.index.read([hit.key for hit in head])
    end = time.monotonic() + settings.milliseconds / 1000
    scores: dict[RevisionKey, float] = {}
    for hit in head:
        if time.monotonic() > end:
            message = f"rerank stopped after {len(scores)} of {len(head)} (reranker.milliseconds)"
            return replace(ranking, degraded=(*ranking.degraded, message))
        if hit.key in revisions:
            parsed = revisions[hit.key].parsed
            body = parsed.text(parsed.body_line, len(parsed.lines))
            text = f"{parsed.record.name} | {parsed.record.description} | {body}"
            scores[hit.key] = float(reranker.score(ranking.understanding.text, [text])[0])
    spread = np.array([hit.score for hit in head])
    order = sorted(head, key=lambda hit: (-scores.get(hit.key, -np.inf), hit.key))
    moved = [
        replace(hit, score=float(value), parts={**hit.parts, "rerank": scores.get(hit.key, 0.0)})
        for hit, value in zip(order, np.sort(spread)[::-1], strict=True)
    ]
    return replace(ranking, hits=(*moved, *ranking.hits[len(head) :]))
