"""Links that are learned from outcomes, and other links whose weights are adapted by outcomes.

The evidence of a learned link begins with `outcomes: `, that of an adapted link with `outcomes xF
(…): `, where F is the factor on its weight. The evidence of any other link begins with a kind of
mention, with a similarity of texts, or with the name of a language model, so that no text of a
skill can imitate a learned link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from graph.records import Link

LEARNED_EVIDENCE = "outcomes: "
_NOTE = re.compile(r"outcomes x([0-9]+\.[0-9]{2}) \([^()]*\): ")


class LearnedLinks(Protocol):
    """Links and weights learned from outcomes; a function of stored outcomes and settings."""

    def find_links(self, skill_ids: Sequence[str]) -> Mapping[str, Sequence[Link]]:
        """Return skill -> learned links that start or end at it, among published skills.

        Every id has a list.
        """
        ...

    def adapt(self, link: Link) -> Link:
        """Return a link with its weight adapted by outcomes, and a note in its evidence.

        Without outcomes about it, the link is returned unchanged.
        """
        ...


def is_learned(link: Link) -> bool:
    """Return whether a link comes only from outcomes."""
    return link.evidence.startswith(LEARNED_EVIDENCE)


def get_note(link: Link) -> str:
    """Return the note about the adaptation of a link, "" if it is not adapted."""
    match = _NOTE.match(link.evidence)
    return match[0] if match else ""


def get_own_evidence(link: Link) -> str:
    """Return the evidence of a link without the note about its adaptation."""
    return link.evidence[len(get_note(link)) :]


def without_note(link: Link) -> Link:
    """Return the link as it was before its adaptation, except for rounding of its weight."""
    match = _NOTE.match(link.evidence)
    if match is None:
        return link
    weight = link.weight / float(match[1])
    return replace(link, weight=weight, evidence=link.evidence[match.end() :])


def owners_of_outdated_weights(links: Iterable[Link], learned: LearnedLinks | None) -> set[str]:
    """Return the owners of links whose weights outcomes would now adapt differently.

    learned: None if outcomes adapt no links.
    """
    owners = set()
    for link in links:
        if is_learned(link):
            continue
        plain = without_note(link)
        wanted = learned.adapt(plain) if learned else plain
        if get_note(link) != get_note(wanted):
            owners.add(link.owner)
    return owners


def adapt_weight(link: Link, factor: float, reason: str) -> Link:
    """Multiply a link's weight by a factor, rounded to hundredths, and add the reason as a note.

    reason: without parentheses. The note contains the factor, so links that differ only in their
    factor have different notes.
    """
    factor = round(factor, 2)
    if factor == 1.0:
        return link
    evidence = f"outcomes x{factor:.2f} ({reason}): {link.evidence}"
    return replace(link, weight=link.weight * factor, evidence=evidence)
