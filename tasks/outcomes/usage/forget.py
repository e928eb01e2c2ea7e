"""Forgets an owner: its rows, and its part of the usage of days whose rows are deleted."""

from __future__ import annotations

import time

from skills.outcomes.model import to_day
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.codec import dump_usage, load_usage
from tasks.outcomes.usage.model import without_owner


def forget_owner(outcomes: OutcomeStore, owner: str) -> int:
    """Delete what an owner asked and reported, and what was reported of its queries; returns the
    number of deleted outcomes.

    Days whose queries are stored are counted anew by the next roll-up; of older ones the owner's
    part is taken out here, except where it is counted together with other owners. It may run again:
    a month that is merged meanwhile keeps its part until then.
    """
    deleted = outcomes.forget_owner(owner)
    changed = outcomes.list_changed_days()
    for day, data in outcomes.get_days(0, to_day(time.time()) + 1).items():
        usage = load_usage(data)
        if day not in changed and any(owner in key for key in usage.groups):
            kept = without_owner(usage, owner)
            outcomes.merge_days(usage.first, usage.last, dump_usage(kept))
    return deleted
