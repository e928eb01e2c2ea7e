"""Protocol of the store of outcomes: answered queries, their outcomes, and changes of these.

Everything that skillbus learns is a function of this store's content and of the library. Rows are
write-once, so that order and repetition of arrivals make no difference; deleting outcomes restores
the state before them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from search.blob_codec import quantise
from search.protocol import Vector
from skills.outcomes.model import AnsweredQuery, Outcome

MAX_CHANGES = 10_000
"""Maximum queries that one read of the change feed returns."""

MAX_OUTCOMES_PER_QUERY = 1_000
"""Maximum outcomes of a query that one owner may report: each new one makes readers read them all
again."""

KEPT_TOMBSTONE_SECONDS = 7 * 86_400.0
"""Seconds for which forgotten queries are known: the change feed names them, and they cannot be
added again."""


@dataclass(frozen=True, slots=True)
class OutcomeChanges:
    """Queries whose outcomes changed, up to `epoch`; if `more`, continue from there.

    An id stands for the present outcomes of the query, which may be none, and its vectors.
    """

    epoch: int
    query_ids: tuple[str, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A unit vector in int8: `values` (dimension,) times `scale`."""

    values: npt.NDArray[np.int8]
    scale: float


def quantise_vector(vector: Vector) -> StoredVector:
    """Return a unit vector in int8, its largest element as 127."""
    scale, data = quantise(vector)
    return StoredVector(np.frombuffer(data, dtype=np.int8), scale)


class AnswerPlace(NamedTuple):
    """The place of an answered query in the order of time, ties by id; answered: time of the
    answer."""

    answered: float
    query_id: str


class TaskVectors(NamedTuple):
    """Vectors of tasks by query, and the encoder that made them."""

    model: str
    vectors: Mapping[str, StoredVector]


class OutcomeStore(Protocol):
    """Answered queries and outcomes; shared by threads and processes.

    Every implementation passes the contract suite in `tests/contract/test_outcome_store.py`.
    Methods raise TransientError when the store is busy, full or unreachable.
    """

    # -- answered queries
    def add_answers(
        self, answers: Sequence[AnsweredQuery], vectors: TaskVectors | None = None
    ) -> None:
        """Store answered queries, with the vectors of their tasks; as durable as the queries in the
        journal.

        The first answer of a query, and its first vector of an encoder, are kept. A forgotten query
        is not added again. A query with outcomes that gets a vector appears in the feed of changes.
        """
        ...

    def drop_answers(self, query_ids: Sequence[str]) -> None:
        """Delete answers without outcomes, as if they had not been stored; answers with outcomes
        are kept."""
        ...

    def get_answers(self, query_ids: Sequence[str]) -> dict[str, AnsweredQuery]:
        """Return answered queries by id; unknown ids are left out."""
        ...

    def list_session(self, owner: str, session: str, limit: int) -> list[AnsweredQuery]:
        """Return the last `limit` answered queries of an owner's session, oldest first."""
        ...

    def list_answers_before(self, place: AnswerPlace, limit: int) -> list[AnsweredQuery]:
        """Return the last `limit` answered queries before a place in the order of time, newest
        first."""
        ...

    # -- outcomes
    def add_outcomes(self, outcomes: Sequence[Outcome], accepted: float = math.inf) -> int:
        """Store outcomes durably, all or none; return how many were new. The first one of a key is
        kept.

        accepted: when the journal accepted them. Those of a query whose outcomes were forgotten
        since then are not stored.
        The query of each must have an answer in the store; raises NotFoundError otherwise. Raises
        PermanentError if an owner would have more than MAX_OUTCOMES_PER_QUERY of a query.
        """
        ...

    def get_outcomes(self, query_ids: Sequence[str]) -> dict[str, tuple[Outcome, ...]]:
        """Return outcomes by query, in order of their keys; queries without outcomes are left
        out."""
        ...

    def get_changes(self, after: int, limit: int = MAX_CHANGES) -> OutcomeChanges:
        """Return the queries whose outcomes changed after an epoch, in the order of their last
        change.

        Costs one cheap read if nothing changed.
        """
        ...

    def get_epoch(self) -> int:
        """Return the last epoch of the feed of changes, 0 if nothing ever changed.

        It never decreases in a store: a reader that has seen a later epoch reads another store.
        """
        ...

    def list_outcomes(self) -> Iterator[Outcome]:
        """Yield all outcomes, by the time of their report, ties by key."""
        ...

    def count_outcomes(self) -> Mapping[str, int]:
        """Return the number of outcomes by owner."""
        ...

    def forget_owner(self, owner: str) -> int:
        """Delete an owner's outcomes and answered queries, with all outcomes of these queries;
        returns the number of deleted outcomes."""
        ...

    def forget_outcomes(self, query_id: str) -> int:
        """Delete all outcomes of a query, but not the query; returns their number. Outcomes that
        were accepted until now, but are not stored yet, are deleted too.

        Raises NotFoundError for a query that is not stored.
        """
        ...

    def forget_before(self, seconds: float) -> int:
        """Delete queries answered before a time, in seconds since the epoch, with their outcomes;
        returns the number of deleted outcomes."""
        ...

    # -- vectors of past tasks
    def get_vectors(self, model: str, query_ids: Sequence[str]) -> dict[str, StoredVector]:
        """Return vectors by query; queries without a vector of this encoder are left out."""
        ...

    # -- contributors
    def add_contributor(self, source_id: str, owner: str) -> None:
        """Record durably that an owner added or changed skills of a source."""
        ...

    def list_contributors(self) -> dict[str, frozenset[str]]:
        """Return the owners who contributed to each source, by source."""
        ...

    def count_contributors(self) -> int:
        """Return the number of pairs of a source and an owner in `list_contributors`."""
        ...

    # -- days, for the roll-up of usage
    def list_changed_days(self) -> dict[int, int]:
        """Return the days that changed since `save_day`, with their present version. A day changes
        with its queries, and with outcomes of queries that were answered on it."""
        ...

    def list_answers_of(self, day: int) -> Iterator[AnsweredQuery]:
        """Yield the queries answered on a day, in an order that depends only on the stored
        queries."""
        ...

    def list_outcomes_of(self, day: int) -> Iterator[Outcome]:
        """Yield the outcomes reported on a day, in an order that depends only on the stored
        outcomes."""
        ...

    def save_day(self, day: int, version: int, usage: bytes) -> None:
        """Store the usage of a day in place of an earlier one.

        version: the version from `list_changed_days` before the day was read.
        """
        ...

    def get_days(self, first: int, last: int) -> dict[int, bytes]:
        """Return the stored usage of the days from `first` to `last`, by day; that of merged days
        is under the first of them."""
        ...

    def prune_days(self, before: int) -> int:
        """Delete the queries of the days before `before` with their outcomes; returns the number of
        queries.

        The usage of these days stays as it is. A day whose usage is not of its present version is
        kept completely. Queries of a pruned day are unknown from then on, and no query can be added
        to it.
        """
        ...

    def merge_days(self, first: int, last: int, usage: bytes) -> None:
        """Store the usage of pruned days as one, under `first`, in place of theirs.

        Changes nothing if a day from `first` to `last` is not pruned.
        """
        ...

    # -- recorded answers
    def get_recorded_until(self) -> float:
        """Return the time, in seconds since the epoch of the journal's clock, up to which every
        answered query of the journal is known to be recorded here; 0 at first."""
        ...

    def set_recorded_until(self, seconds: float) -> None:
        """Move the time of `get_recorded_until` forward; an earlier time changes nothing."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def describe_unknown_queries(query_ids: Sequence[str]) -> str:
    """Return the message for outcomes of queries that the store does not have."""
    return (
        f"no answered query {query_ids[0]!r}; give the query id of an answer. Outcomes are "
        "accepted for `learning.days` days after it"
    )


def describe_full_query(query_id: str) -> str:
    """Return the message for outcomes of a query of which their owner has reported too many."""
    return (
        f"at most {MAX_OUTCOMES_PER_QUERY:,} outcomes of a query are accepted of an owner; query "
        f"{query_id!r} has no room for these"
    )
