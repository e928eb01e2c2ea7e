"""Stores of outcomes that fail at a chosen read or are exchanged, and random changes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from hypothesis import strategies as st
from typing_extensions import override

from config.errors import NotFoundError, TransientError
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes.protocol import OutcomeChanges, OutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore

FIRST_DAY = 20_000


class FailingStore(SqliteOutcomeStore):
    """A store whose read number `fails_at` from now fails, the first being 1; 0 for none."""

    fails_at = 0

    def _count_down(self) -> None:
        self.fails_at -= 1
        if not self.fails_at:
            raise TransientError("the store is busy")

    @override
    def get_outcomes(self, query_ids: Sequence[str]) -> dict[str, tuple[Outcome, ...]]:
        self._count_down()
        return super().get_outcomes(query_ids)

    @override
    def get_changes(self, after: int, limit: int = 3) -> OutcomeChanges:
        self._count_down()
        return super().get_changes(after, limit)


class ExchangedStore:
    """Stands for one store, then for another, as a server does whose data were moved away.

    calls: names of methods that were called.
    """

    def __init__(self, store: OutcomeStore) -> None:
        self.store = store
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self.store, name)

    @property
    def as_store(self) -> OutcomeStore:
        """Itself, for those who ask for a store."""
        return cast(OutcomeStore, self)


def report(
    store: OutcomeStore,
    number: int,
    said: Iterable[tuple[str, OutcomeKind]],
    *,
    day: int = 0,
    owner: str = "",
) -> None:
    """Outcomes of the query `q<number>`, answered on the day of its number, as one owner has them.

    said: skills with what came of them. day: of the report. Days count from FIRST_DAY.
    """
    query_id, at = f"q{number}", float((FIRST_DAY + number) * SECONDS_PER_DAY)
    reported = float((FIRST_DAY + day) * SECONDS_PER_DAY)
    store.add_answers([AnsweredQuery(query_id, "asker", "", f"clean trips {number}", at, hit=True)])
    store.add_outcomes(
        [
            Outcome(
                f"{query_id}-{owner}-{day}-{skill_id}",
                query_id,
                skill_id if kind is not OutcomeKind.MISSING else "",
                kind,
                Reporter.PERSON,
                owner,
                reported,
                place=place,
            )
            for place, (skill_id, kind) in enumerate(said, 1)
        ]
    )


SAID = st.lists(
    st.tuples(
        st.sampled_from(["lib:a", "lib:b", "lib:c"]),
        st.sampled_from([*[OutcomeKind.HELPED] * 6, *OutcomeKind]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one[0],
)
_REPORTS = st.tuples(
    st.just("report"),
    st.integers(0, 4),
    SAID,
    st.integers(0, 6),
    st.sampled_from(["", "ann"]),
)
_CHANGES = st.one_of(
    *[_REPORTS] * 4,
    st.tuples(st.just("forget_owner"), st.sampled_from(["", "ann"])),
)
STEPS = st.tuples(
    st.lists(
        st.tuples(st.lists(_CHANGES, min_size=1, max_size=5), st.integers(0, 6)),
        min_size=2,
        max_size=6,
    ),
    st.tuples(st.tuples(st.just("forget_before"), st.integers(0, 4)), st.integers(0, 3)),
    st.lists(st.tuples(st.lists(_CHANGES, max_size=3), st.integers(0, 6)), max_size=2),
).map(lambda parts: [*parts[0], ([parts[1][0]], parts[1][1]), *parts[2]])
"""Changes of a store, and the number of the read at which a reader then fails, 0 for none."""


def apply(store: OutcomeStore, changes: Iterable[tuple[Any, ...]]) -> None:
    """Let changes happen to a store."""
    for name, *rest in changes:
        if name == "report":
            number, said, day, owner = rest
            with suppress(NotFoundError):  # a query that was forgotten does not come back
                report(store, number, said, day=day, owner=owner)
        elif name == "forget_owner":
            store.forget_owner(rest[0])
        else:
            store.forget_before(float((FIRST_DAY + rest[0]) * SECONDS_PER_DAY))
