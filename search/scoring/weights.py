"""Weights of the lexical search and of the exact score."""

from __future__ import annotations

from dataclasses import dataclass

FIELD_BOOSTS = (4.0, 3.0, 1.0, 0.5, 0.3)
"""Boost of each field in the BM25 of the engines, in the order of TEXT_FIELDS."""


@dataclass(frozen=True, slots=True)
class ScoringWeights:
    """Weights of the exact score, chosen by `tests/bench/choose_ranking.py`.

    Each `*_spread` is the typical standard deviation of that part over a library. Weights that
    differ between short queries and long tasks are pairs (short, long).

    short_words, blend_words: t goes from 0 to 1 between `short_words` and `short_words +
    blend_words` distinct words. BM25F: field_weights (of FIELDS), body_short (of prose and code,
    for short queries), length_norms, k_short, k_long. The weight of `completed` is half of that of
    `description`: not chosen by measurement yet.

    For short queries: description, k_description: BM25 of the description alone. examples: BM25 of
    the prompts that a skill gives as examples, with their length norm and mean number of terms.
    exclusion: the task matches what the skill excludes. exact_name: query and name are the same.

    name_coverage: the task has the words of the name. bigrams, bigrams_half: common bigrams, and
    the field weight at which their gain is half. hub, hub_mean: hubness, relative to its mean, is
    subtracted from scores of long tasks; hub_rivals: the number of skills at which that weight is
    half. dense_description, dense_head: cosines of the two skill vectors, standardised by
    the scale of the encoder. slots: places, of which half may go to promoted skills.
    """

    short_words: float = 20.0
    blend_words: float = 60.0
    field_weights: tuple[float, ...] = (3.0, 2.0, 1.0, 0.2, 0.2, 1.0)
    body_short: float = 1.5
    length_norms: tuple[float, ...] = (0.3, 0.75, 1.0, 1.0, 1.0, 0.75)
    k_short: float = 2.0
    k_long: float = 3.0
    bm25f_spread: float = 0.59
    description: float = 0.4
    k_description: float = 1.2
    examples: float = 0.4
    examples_norm: float = 0.75
    examples_length: float = 28.0
    exclusion: float = 30.0
    name_coverage: tuple[float, float] = (0.1, 0.2)
    name_coverage_spread: float = 0.08
    exact_name: float = 6.0
    bigrams: tuple[float, float] = (0.12, 0.05)
    bigrams_spread: float = 0.05
    bigrams_half: float = 3.0
    hub: float = 0.8
    hub_rivals: float = 1000.0
    hub_mean: float = 1.3
    hub_spread: float = 0.32
    dense_description: tuple[float, float] = (0.35, 0.1)
    dense_head: tuple[float, float] = (0.35, 0.0)
    slots: int = 10

    def interpolate(self, pair: tuple[float, float], t: float) -> float:
        """Interpolate a pair at t: 0 for a short query, 1 for a long task."""
        return (1.0 - t) * pair[0] + t * pair[1]
