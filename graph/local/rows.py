"""Conversion of SQLite rows into records; the order of values is set by the statements."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from graph.entry_filter import EntryCount
from graph.records import (
    Adjacency,
    CatalogChanges,
    Link,
    LinkType,
    Neighbour,
    SkillState,
    Source,
)
from graph.row_codec import optional_bool

LinkEnd = tuple[float, str, int, str]
"""A link as seen from one end, in sort order: -weight, type, 1 if it is incoming, skill_id."""

ENTRY_COLUMNS = """skill_id, source_id, path, state, name, description, seq, content_hash,
    wanted_seq, reason, warnings, safety_level, tokens, language, licence, vectors, paged,
    updated, scanner, judgements, has_scripts, parser"""
"""Columns that `entry_from_row` reads."""

ENTRY_CONDITIONS = {
    "language": "language = :language",
    "licence": "licence = :licence",
    "safety_level": "safety_level >= :safety_level",
    "embedded": "paged = :embedded",
    "has_scripts": "has_scripts = :has_scripts",
    "scripts_unknown": "has_scripts IS NULL",
}
"""Conditions of an `EntryFilter`, by name. A statement contains only conditions that are set, since
unset conditions would cost time for each row."""

_LINK_TYPES = {kind.value: kind for kind in LinkType}
_CONFLICT = LinkType.CONFLICT.value
"""Value of the type that is listed first. Types are looked up by value in these constants, since a
query reads thousands of links, for which the enum's own lookup is too slow."""


def to_json_array(texts: Iterable[str]) -> str:
    """Return texts as the JSON array that a statement takes, each once.

    Texts with NUL are left out: no id or name that is stored has one, and `json_each` would end the
    text there, so that it would be the id of another skill.
    """
    return json.dumps([text for text in dict.fromkeys(texts) if "\0" not in text])


def source_from_row(row: tuple[Any, ...]) -> Source:
    """Convert a row of the statement `sources`."""
    return Source(*row[:6], *(tuple(json.loads(row[6])), *row[7:]))


def count_from_row(row: tuple[Any, ...]) -> EntryCount:
    """Convert a row of the statement `count_entries`."""
    values = list(row)
    values[1] = SkillState(values[1])
    values[5], values[6] = optional_bool(values[5]), bool(values[6])
    return EntryCount(*values)


def changes_from_rows(rows: Iterable[tuple[Any, ...]]) -> CatalogChanges:
    """Convert the rows of the statement `changes`."""
    now, pointers, relinked = 0, {}, set()
    for kind, skill_id, number in rows:
        if kind == 0:
            now = number
        elif kind == 1:
            pointers[skill_id] = number
        else:
            relinked.add(skill_id)
    return CatalogChanges(now, pointers, frozenset(relinked))


def link_from_row(row: Iterable[Any]) -> Link:
    """Convert a row of owner, source, target, type, weight and evidence."""
    owner, source, target, kind, weight, evidence = row
    return Link(owner, source, target, _LINK_TYPES[kind], weight, evidence)


def adjacency_from_ends(ends: list[LinkEnd], fan_out: int) -> Adjacency:
    """Return an adjacency row: neighbours up to the fan-out, and the totals of all neighbours."""
    ends.sort(key=lambda end: (end[1] != _CONFLICT, end))
    totals: defaultdict[tuple[str, int], float] = defaultdict(float)
    for minus, kind, backward, _ in ends:
        totals[kind, backward] -= minus
    neighbours = tuple(
        Neighbour(other, _LINK_TYPES[kind], not backward, -minus)
        for minus, kind, backward, other in ends[:fan_out]
    )
    return Adjacency(
        neighbours, {(_LINK_TYPES[kind], not back): total for (kind, back), total in totals.items()}
    )
