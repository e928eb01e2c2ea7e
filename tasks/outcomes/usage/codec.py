"""Serialisation of the usage of a period: compact JSON under zlib, with a table of skills."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.outcomes.usage.model import SKILL_COUNTERS, GroupUsage, Usage

_VERSION = 1
_COMPRESSION_LEVEL = 6


def dump_usage(usage: Usage) -> bytes:
    """Serialise a usage; `load_usage` restores an equal one. Equal usages give equal bytes."""
    groups = sorted(usage.groups.items())
    named = {skill_id for _, group in groups for skill_id in group.skills}
    named |= {skill_id for _, group in groups for pair in group.lost for skill_id in pair}
    skills = sorted(named)
    places = {skill_id: place for place, skill_id in enumerate(skills)}
    values = [
        _VERSION,
        usage.first,
        usage.last,
        SKILL_COUNTERS,
        skills,
        [[*key, *_dump_group(group, places)] for key, group in groups],
        sorted(usage.unanswered.items()),
    ]
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(text.encode("utf-8", "replace"), _COMPRESSION_LEVEL)


def _dump_group(group: GroupUsage, places: Mapping[str, int]) -> list[Any]:
    rows = sorted((places[skill_id], *_trim(row)) for skill_id, row in group.skills.items())
    lost = sorted((places[one], places[to], count) for (one, to), count in group.lost.items())
    totals = {name: count for name, count in sorted(group.totals.items()) if count}
    return [totals, rows, lost]


def _trim(row: Sequence[int]) -> Sequence[int]:
    """Return a row without trailing zeros."""
    end = len(row)
    while end and not row[end - 1]:
        end -= 1
    return row[:end]


def load_usage(data: bytes) -> Usage:
    """Return the usage from `dump_usage`. Counters that this version does not have are left out."""
    _, first, last, columns, skills, groups, unanswered = json.loads(zlib.decompress(data))
    return Usage(
        first,
        last,
        {
            (asker, reporter): _load_group(totals, rows, lost, columns, skills)
            for asker, reporter, totals, rows, lost in groups
        },
        {owner: tuple(ids) for owner, ids in unanswered},
    )


def _load_group(
    totals: Mapping[str, int],
    rows: Sequence[Sequence[int]],
    lost: Sequence[Sequence[int]],
    columns: Sequence[str],
    skills: Sequence[str],
) -> GroupUsage:
    width = len(columns)
    order = None if tuple(columns) == SKILL_COUNTERS else list(columns)
    counts = {}
    for place, *row in rows:
        row += [0] * (width - len(row))
        if order is not None:
            named = dict(zip(order, row, strict=True))
            row = [named.get(name, 0) for name in SKILL_COUNTERS]
        counts[skills[place]] = array("q", row)
    return GroupUsage(
        Counter(totals),
        counts,
        Counter({(skills[one], skills[to]): count for one, to, count in lost}),
    )
