"""Present usage of a range of days."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.codec import load_usage
from tasks.outcomes.usage.model import Usage
from tasks.outcomes.usage.roll_up import count_small_day

MAX_LIVE_QUERIES = 5_000
"""Maximum queries of days without a roll-up that a reader counts itself."""


@dataclass(frozen=True, slots=True)
class UsageWindow:
    """The usage of days, oldest first.

    first, last: the requested days. behind: days that changed since their roll-up and are too large
    for a reader to count; their usage is that of the last roll-up, if any.
    """

    first: int
    last: int
    days: tuple[Usage, ...]
    behind: tuple[int, ...] = ()


def read_usage(
    outcomes: OutcomeStore, first: int, last: int, max_queries: int = MAX_LIVE_QUERIES
) -> UsageWindow:
    """Return the usage of the days from `first` to `last`.

    Days that changed since their roll-up are counted from their rows, newest first, as long as they
    have at most `max_queries` queries together, so that new queries are included at once.
    """
    changed = [day for day in outcomes.list_changed_days() if first <= day <= last]
    found: dict[int, Usage] = {}
    behind = []
    for day in sorted(changed, reverse=True):
        usage, queries = count_small_day(outcomes, day, max_queries)
        max_queries -= queries
        if usage is None:
            behind.append(day)
        else:
            found[day] = usage
    for day, data in outcomes.get_days(first, last).items():
        if day not in found:
            found[day] = load_usage(data)
    return UsageWindow(
        first, last, tuple(found[day] for day in sorted(found)), tuple(sorted(behind))
    )
