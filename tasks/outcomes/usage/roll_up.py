"""The task `skillbus.roll_up`: counts the usage of changed days, and deletes old rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from config.errors import TransientError
from config.settings import Settings
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, Outcome, to_day
from tasks.evaluations.open import open_evaluations
from tasks.evaluations.protocol import forget_prompts
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.codec import dump_usage, load_usage
from tasks.outcomes.usage.model import Usage, UsageCollector, merge_usage
from tasks.policies import Deadline
from tasks.services import Services

LOCK = "roll_up"
"""Name of a lock of the coordinator: one process rolls up at a time."""

_PRUNE, _MERGE = "prune_usage", "merge_usage"
_PAGE = 250
"""Number of queries in memory at once; with more of them, the garbage collector takes longer."""
_MONTHS = 120
"""Months before the kept days that are merged: `learning.days` may be reduced by years, and reports
cover ten."""


def needs_roll_up(services: Services) -> bool:
    """Return whether the task has work, and was not sent within `learning.roll_up_seconds`.

    The day that is still being written changes with every query: it is rolled up at intervals.
    """
    coordinator = services.coordinator
    if not coordinator.claim_if_due(LOCK, services.settings.learning.roll_up_seconds):
        return False
    return bool(services.outcomes.list_changed_days()) or coordinator.claim_if_due(
        _PRUNE, SECONDS_PER_DAY
    )


def roll_up(services: Services, deadline: Deadline, ids: Sequence[str] = ()) -> dict[str, object]:
    """Count the usage of all changed days, then prune and merge days older than `learning.days`,
    and delete the texts of their queries from kept evaluations; one process at a time.

    Takes no ids. Each day is counted as a whole from its rows, so that duplicates, their order and
    a kill at any moment change nothing. Raises TransientError when the time is over or the process
    stops; finished days stay finished.
    """
    del ids
    outcomes = services.outcomes

    def pause() -> None:
        services.coordinator.yield_to_queries()
        deadline.check(LOCK)
        if services.stopping.is_set():
            raise TransientError("the process is stopping")

    with services.coordinator.try_lock(LOCK) as acquired:
        if not acquired:
            return {"skipped": "another process rolls up"}
        report: dict[str, object] = {"days": roll_up_days(outcomes, pause)}
        kept_from = to_day(time.time() - services.settings.learning.days * SECONDS_PER_DAY)
        report["pruned_queries"] = outcomes.prune_days(kept_from)
        if services.coordinator.claim_if_due(_MERGE, SECONDS_PER_DAY):
            report["merged_months"] = merge_months(outcomes, kept_from)
            report["forgotten_prompts"] = _forget_evaluated(services.settings, kept_from)
        return report


def _forget_evaluated(settings: Settings, kept_from: int) -> int:
    """Delete the prompts that were asked before the day `kept_from` from the kept runs of `eval`;
    returns how many."""
    with ExitStack() as stack:
        evaluations = open_evaluations(settings, stack)
        return forget_prompts(evaluations, lambda one: to_day(one.asked) < kept_from)


def roll_up_days(outcomes: OutcomeStore, pause: Callable[[], None]) -> int:
    """Store the usage of all days that changed, oldest first; returns how many.

    pause: called between pages of rows.
    """
    changed = outcomes.list_changed_days()
    for day, version in sorted(changed.items()):
        usage = count_day(outcomes, day, pause)
        outcomes.save_day(day, version, dump_usage(usage))
    return len(changed)


def count_day(outcomes: OutcomeStore, day: int, pause: Callable[[], None]) -> Usage:
    """Return the usage of a day from its rows, of which only pages are in memory at a time."""
    collector = UsageCollector(day)
    for page in _read_pages(outcomes, day):
        for answer, reported in page:
            collector.add(answer, reported)
        pause()
    return collector.finish()


def count_small_day(outcomes: OutcomeStore, day: int, max_queries: int) -> tuple[Usage | None, int]:
    """Return the usage of a day, None if it has more than `max_queries`; and the number of its
    queries."""
    collector, queries = UsageCollector(day), 0
    for page in _read_pages(outcomes, day):
        queries += len(page)
        if queries > max_queries:
            return None, queries
        for answer, reported in page:
            collector.add(answer, reported)
    return collector.finish(), queries


def _read_pages(
    outcomes: OutcomeStore, day: int
) -> Iterator[list[tuple[AnsweredQuery, tuple[Outcome, ...]]]]:
    """Yield the queries of a day with their outcomes."""
    answers = outcomes.list_answers_of(day)
    while page := list(islice(answers, _PAGE)):
        reported = outcomes.get_outcomes([answer.query_id for answer in page])
        yield [(answer, reported.get(answer.query_id, ())) for answer in page]


def merge_months(outcomes: OutcomeStore, kept_from: int) -> int:
    """Merge the days of each month before that of the day `kept_from` into one period; returns how
    many months were merged."""
    merged = 0
    first = _first_of_month(kept_from)
    for _ in range(_MONTHS):
        last, first = first - 1, _first_of_month(first - 1)
        found = outcomes.get_days(first, last)
        if len(found) > 1:
            usage = merge_usage([load_usage(data) for data in found.values()])
            outcomes.merge_days(first, last, dump_usage(replace(usage, first=first, last=last)))
            merged += 1
    return merged


def _first_of_month(day: int) -> int:
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    return day - date.day + 1
