"""What the rows of the SQLite file say: sources, entries, links, and rows of links."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from graph.packing import unpack_mentions, unpack_vector
from graph.protocol import (
    Adjacency,
    CatalogEntry,
    Link,
    LinkFeatures,
    LinkType,
    Neighbour,
    SkillState,
    Source,
)

LinkEnd = tuple[float, str, int, str]
"""A link's other end, as rows are sorted: -weight, type, 1 where it comes in, skill_id."""

ENTRY_COLUMNS = """skill_id, source_id, path, state, name, description, seq, content_hash,
    wanted_seq, reason, warnings, safety_level, tokens, language, licence, paged, updated,
    scanner"""
"""The columns of `entry_of`."""

_TYPES = {kind.value: kind for kind in LinkType}
"""By value: thousands of ends a query are too many for the enum's own lookup."""


def source_from_row(row: tuple[Any, ...]) -> Source:
    """A source, its licences from JSON."""
    return Source(*row[:6], *(tuple(json.loads(row[6])), *row[7:]))


def entry_from_row(row: tuple[Any, ...]) -> CatalogEntry:
    """An entry, of the columns ENTRY."""
    values = list(row)
    values[3] = SkillState(values[3])
    values[15] = bool(values[15])
    return CatalogEntry(*values)


def link_from_row(row: Iterable[Any]) -> Link:
    """A link of its owner, source, target, type, weight and evidence."""
    owner, source, target, kind, weight, evidence = row
    return Link(owner, source, target, _TYPES[kind], weight, evidence)


def features_from_row(row: tuple[Any, ...]) -> LinkFeatures:
    """What linking needs of a skill."""
    skill_id, source_id, path, name, signature, described, mentions = row
    vectors = (unpack_vector(signature), unpack_vector(described))
    return LinkFeatures(skill_id, source_id, path, name, *vectors, unpack_mentions(mentions))


def adjacency_from_ends(ends: list[LinkEnd], fan_out: int) -> Adjacency:
    """Neighbours heaviest first, cut at the fan-out, with the totals of the whole."""
    ends.sort()
    totals: defaultdict[tuple[str, int], float] = defaultdict(float)
    for minus, kind, backward, _ in ends:
        totals[kind, backward] -= minus
    neighbours = tuple(
        Neighbour(other, _TYPES[kind], not backward, -minus)
        for minus, kind, backward, other in ends[:fan_out]
    )
    return Adjacency(
        neighbours, {(_TYPES[kind], not back): total for (kind, back), total in totals.items()}
    )
