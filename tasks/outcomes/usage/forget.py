"""Deletion of an owner's rows, and of its part of the usage of days whose rows are deleted."""

from __future__ import annotations

import math
import time

from skills.outcomes.model import to_day
from tasks.outcomes.protocol import AnswerPlace, OutcomeStore
from tasks.outcomes.usage.codec import dump_usage, load_usage
from tasks.outcomes.usage.model import without_owner

_BATCH = 1_000


def has_owner(outcomes: OutcomeStore, owner: str) -> bool:
    """Return whether an owner has outcomes, answered queries or counts in the usage; reads every
    query to say no."""
    if owner in outcomes.count_outcomes():
        return True
    days = outcomes.get_days(0, to_day(time.time()) + 1).values()
    if any(owner in key for data in days for key in load_usage(data).groups):
        return True
    place = AnswerPlace(math.inf, "")
    while batch := outcomes.list_answers_before(place, _BATCH):
        if any(one.owner == owner for one in batch):
            return True
        place = AnswerPlace(batch[-1].answered, batch[-1].query_id)
    return False


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
