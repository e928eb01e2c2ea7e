"""Protocol of the store of pairs of skills: verdicts of a model, and rejections by queries.

A verdict is about two contents and does not expire, like other answers. Rejections say, for one
query, which candidates were left out and why; a pair that many different queries compare becomes a
candidate for a link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, islice
from typing import NamedTuple, Protocol

from skills.bundle.rejection import RejectionReason
from tasks.language_model.answer_store import RefinementKind

MAX_QUERIES = 20_000
"""Maximum queries whose rejections are kept; the oldest are deleted."""

MAX_PAIRS = 100
"""Maximum pairs of one query that are counted, the first ones."""

PAIR_REASONS = (RejectionReason.REDUNDANT, RejectionReason.INCOMPATIBLE)
"""Reasons that compare a candidate with another candidate."""

ContentPair = tuple[str, str]
"""Two content hashes, in order."""

ComparedPair = tuple[str, str, RejectionReason]
"""Two skills, and the reason for which a query compared them."""


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Verdict of a model about two contents.

    hashes, skill_ids: of both, in the order of the hashes; skill_ids as of the time of the
    question. type: a `LinkType`, "" for no link. first: whether the link leads from the first to
    the second. evidence: the lines that show it, in words.
    """

    hashes: ContentPair
    skill_ids: tuple[str, str]
    type: str = ""
    first: bool = True
    evidence: str = ""


class RejectedPair(NamedTuple):
    """Two skills, in order of their ids, and the number of queries that compared them for a
    reason."""

    skill_ids: tuple[str, str]
    reason: RejectionReason
    queries: int


class SkillPairStore(Protocol):
    """Verdicts and rejections; shared by threads and processes.

    Every implementation passes the contract suite in `tests/contract/test_skill_pairs.py`. Methods
    raise TransientError when the store is busy, full or unreachable.
    """

    def save_verdicts(self, kind: RefinementKind, verdicts: Sequence[PairVerdict]) -> None:
        """Store verdicts durably. The first verdict of a pair is kept."""
        ...

    def find_known(self, kind: RefinementKind, pairs: Sequence[ContentPair]) -> set[ContentPair]:
        """Return the given pairs that have a verdict."""
        ...

    def find_links(
        self, kind: RefinementKind, hashes: Sequence[str]
    ) -> dict[str, list[PairVerdict]]:
        """Return the verdicts that give a link, by content and in order of the other content; every
        hash has a list."""
        ...

    def list_linked(self, kind: RefinementKind) -> Iterator[str]:
        """Yield the contents with a verdict that gives a link, each once."""
        ...

    def record(self, query_key: str, compared: Set[ComparedPair]) -> None:
        """Store the pairs that a query compared, as `find_compared_pairs` returns them.

        query_key: identifies a query, so that a repeated query counts once.
        """
        ...

    def list_rejected_pairs(self, min_queries: int, limit: int) -> list[RejectedPair]:
        """Return pairs that at least `min_queries` different queries compared for one reason, the
        most frequent first, ties by skill_ids and reason."""
        ...

    def forget(self, hashes: Sequence[str]) -> int:
        """Delete the verdicts about these contents; returns how many."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def order_pair(one: str, other: str) -> tuple[str, str]:
    """Return two ids or hashes in order."""
    return (one, other) if one <= other else (other, one)


def find_compared_pairs(
    reasons: Mapping[str, RejectionReason], compared: Sequence[ComparedPair]
) -> set[ComparedPair]:
    """Return the pairs that a query compared, each in order: the stated ones, and skills that it
    rejected together for one of PAIR_REASONS; at most MAX_PAIRS of each.

    reasons: of the rejected skills.
    """
    found = {
        (*order_pair(one, other), reason)
        for one, other, reason in compared[:MAX_PAIRS]
        if one != other and reason in PAIR_REASONS
    }
    for reason in PAIR_REASONS:
        rejected = [one for one, why in reasons.items() if why is reason]
        pairs = islice(combinations(rejected, 2), MAX_PAIRS)
        found |= {(*order_pair(one, other), reason) for one, other in pairs}
    return found
