"""What the rows of the SQLite file say: sources, entries, links, and rows of links."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from graph.local.packing import unpack_mentions, unpack_vector
from graph.protocol import Entry, Link, LinkFacts, LinkType, Neighbour, Row, Source, State

End = tuple[float, str, int, str]
"""A link's other end, as rows are sorted: -weight, type, 1 where it comes in, skill_id."""

ENTRY = """skill_id, source_id, path, state, name, description, seq, content_hash, wanted_seq,
    reason, warnings, safety_level, tokens, language, licence, paged, updated, scanner"""
"""The columns of `entry_of`."""

_TYPES = {kind.value: kind for kind in LinkType}
"""By value: thousands of ends a query are too many for the enum's own lookup."""


def source_of(row: tuple[Any, ...]) -> Source:
    """A source, its licences from JSON."""
    return Source(*row[:6], *(tuple(json.loads(row[6])), *row[7:]))


def entry_of(row: tuple[Any, ...]) -> Entry:
    """An entry, of the columns ENTRY."""
    values = list(row)
    values[3] = State(values[3])
    values[15] = bool(values[15])
    return Entry(*values)


def link_of(row: Iterable[Any]) -> Link:
    """A link of its owner, source, target, type, weight and evidence."""
    owner, source, target, kind, weight, evidence = row
    return Link(owner, source, target, _TYPES[kind], weight, evidence)


def facts_of(row: tuple[Any, ...]) -> LinkFacts:
    """What linking needs of a skill."""
    skill_id, source_id, path, name, signature, described, mentions = row
    vectors = (unpack_vector(signature), unpack_vector(described))
    return LinkFacts(skill_id, source_id, path, name, *vectors, unpack_mentions(mentions))


def row_of(ends: list[End], fan_out: int) -> Row:
    """Neighbours heaviest first, cut at the fan-out, with the totals of the whole."""
    ends.sort()
    totals: defaultdict[tuple[str, int], float] = defaultdict(float)
    for minus, kind, backward, _ in ends:
        totals[kind, backward] -= minus
    neighbours = tuple(
        Neighbour(other, _TYPES[kind], not backward, -minus)
        for minus, kind, backward, other in ends[:fan_out]
    )
    return Row(
        neighbours, {(_TYPES[kind], not back): total for (kind, back), total in totals.items()}
    )
