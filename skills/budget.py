"""How the tokens of a bundle are spent across skills: by expected worth, not in equal parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """What one skill would like to send.

    base: tokens of its header. worth: how much the skill is expected to matter, above 0.
    passages: (index, worth within the skill in (0, 1], tokens), any order.
    """

    base: int
    worth: float
    passages: Sequence[tuple[int, float, int]]


def spend(offers: Sequence[Offer], budget: int) -> list[list[int] | None]:
    """For each offer the passages that are bought, ascending, or None when the skill is not.

    Skills come best first. Each first gets its header and its best passage, in that order, as
    long as the budget lasts; what is left buys passages by worth of skill × worth of passage.
    The costs of what is bought never add up to more than the budget.
    """
    bought: list[list[int] | None] = []
    left = budget
    for offer in offers:
        best = min(offer.passages, key=lambda passage: (-passage[1], passage[0]), default=None)
        cost = offer.base + (best[2] if best else 0)
        if cost > left:
            # Perhaps the best passage is only too long: the header with a lesser one may fit.
            best = _best_fitting(offer, left)
            cost = offer.base + (best[2] if best else 0)
        if cost > left or (best is None and offer.passages):
            bought.append(None)
            continue
        bought.append([best[0]] if best else [])
        left -= cost
    wishes = sorted(
        (-offer.worth * worth, place, index, cost)
        for place, offer in enumerate(offers)
        for index, worth, cost in offer.passages
        if (mine := bought[place]) is not None and index not in mine
    )
    for _, place, index, cost in wishes:
        mine = bought[place]
        if cost <= left and mine is not None:
            mine.append(index)
            left -= cost
    return [sorted(mine) if mine is not None else None for mine in bought]


def _best_fitting(offer: Offer, left: int) -> tuple[int, float, int] | None:
    fitting = [passage for passage in offer.passages if offer.base + passage[2] <= left]
    return min(fitting, key=lambda passage: (-passage[1], passage[0]), default=None)
