"""Links that are learned from outcomes: how they differ from others, and how others are adapted.

The evidence of a learned link begins with `outcomes: `, that of an adapted one with `outcomes xF
(…): `, where F is the factor on its weight. The evidence of any other link begins with a kind of
mention, with how alike texts are, or with the name of a language model, so that no text of a skill
can pass for learned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from graph.records import Link

LEARNED_EVIDENCE = "outcomes: "
_NOTE = re.compile(r"outcomes x([0-9]+\.[0-9]{2}) \([^()]*\): ")


class LearnedLinks(Protocol):
    """What outcomes say about links; a function of the stored outcomes and the settings."""

    def find_links(self, skill_ids: Sequence[str]) -> Mapping[str, Sequence[Link]]:
        """By skill, the learned links that start or end at it, among published skills; every id
        has a list."""
        ...

    def adapt(self, link: Link) -> Link:
        """A link with the weight that outcomes give it, and a note in its evidence; the link
        itself where they say nothing about it."""
        ...


def is_learned(link: Link) -> bool:
    """Whether a link comes from outcomes alone."""
    return link.evidence.startswith(LEARNED_EVIDENCE)


def get_note(link: Link) -> str:
    """What outcomes changed about a link, "" if nothing."""
    match = _NOTE.match(link.evidence)
    return match[0] if match else ""


def get_own_evidence(link: Link) -> str:
    """The evidence of a link without what outcomes changed about it."""
    return link.evidence[len(get_note(link)) :]


def without_note(link: Link) -> Link:
    """The link as it was before outcomes changed it, to within rounding of its weight."""
    match = _NOTE.match(link.evidence)
    if match is None:
        return link
    weight = link.weight / float(match[1])
    return replace(link, weight=weight, evidence=link.evidence[match.end() :])


def adapt_weight(link: Link, factor: float, reason: str) -> Link:
    """The link with its weight times a factor, rounded to hundredths, and the reason as a note.

    reason: without parentheses. The note says the factor, so that two links with the same note have
    the same weight.
    """
    factor = round(factor, 2)
    if factor == 1.0:
        return link
    evidence = f"outcomes x{factor:.2f} ({reason}): {link.evidence}"
    return replace(link, weight=link.weight * factor, evidence=evidence)
