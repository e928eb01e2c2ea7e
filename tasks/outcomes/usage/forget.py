"""Deletion of an owner's rows, and of its part of the usage of days whose rows are deleted."""

from __future__ import annotations

import time

from skills.outcomes.model import to_day
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.codec import dump_usage, load_usage
from tasks.outcomes.usage.model import without_owner


def forget_owner(outcomes: OutcomeStore, owner: str) -> int:
    """Delete the queries and outcomes of an owner, and the outcomes of its queries; returns the
    number of deleted outcomes.

    The next roll-up counts days with stored queries anew. From older days the owner's part is
    subtracted here, unless it is counted together with other owners. It can be repeated: a month
    that is merged meanwhile keeps the owner's part until then.
    """
    deleted = outcomes.forget_owner(owner)
    changed = outcomes.list_changed_days()
    for day, data in outcomes.get_days(0, to_day(time.time()) + 1).items():
        usage = load_usage(data)
        if day not in changed and any(owner in key for key in usage.groups):
            kept = without_owner(usage, owner)
            outcomes.merge_days(usage.first, usage.last, dump_usage(kept))
    return deleted
