"""Conversion of Cypher rows into records, and back; the order of values is set by the statements.

Empty properties are not stored, and are read as null.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from graph.records import (
    Adjacency,
    CatalogEntry,
    Link,
    LinkFeatures,
    LinkType,
    Neighbour,
    Source,
)
from graph.row_codec import entry_from_row, features_from_row

HAS_SCRIPTS = "CASE WHEN s.scanned_seq = s.seq THEN s.has_scripts END"
"""Expression for whether a skill has scripts; null if unknown."""

PARSER = "CASE WHEN s.parsed_seq = s.seq THEN coalesce(s.parser, 0) ELSE 0 END"
"""Expression for the version of the parser that made the published revision. A skillbus that does
not store the version leaves that of the revision before."""

ENTRY_COLUMNS = f"""s.skill_id, s.source_id, s.path, s.state, s.name, s.description, s.seq,
    s.content_hash, s.wanted_seq, s.reason, s.warnings, s.safety_level, s.tokens, s.language,
    s.licence, s.seq > 0 AND s.without_vectors IS NULL, s.paged, s.updated, s.scanner,
    s.judgements, {HAS_SCRIPTS}, {PARSER}"""
"""Values that `entries_from_rows` reads."""

ENTRY_CONDITIONS = {
    "language": "coalesce(s.language, '') = $language",
    "licence": "coalesce(s.licence, '') = $licence",
    "safety_level": "coalesce(s.safety_level, 0) >= $safety_level",
    "embedded": "coalesce(s.paged, false) = $embedded",
    "has_scripts": "s.has_scripts = $has_scripts AND s.scanned_seq = s.seq",
    "scripts_unknown": "(s.scanned_seq IS NULL OR s.scanned_seq <> s.seq)",
}
"""Conditions of an `EntryFilter`, by name. A statement contains only conditions that are set, since
unset conditions would cost time for each node."""

_SKILL_ID, _STATE = 0, 3

_ENTRY_DEFAULTS: tuple[Any, ...] = (
    "", "", "", "", "", "", 0, "", 0, "", 0, 0, 0, "", "", False, False, 0.0, 0, "", None, 0,
)  # fmt: skip
_LINK_TYPES = {kind.name: kind for kind in LinkType}
"""Relationship type -> type of the link. A query reads thousands of links, for which the enum's own
lookup is too slow."""

_NAME = 3
"""Index of the name in a row of `link_features`."""

_MAX_KEY_BYTES = 1_000


def source_from_row(row: Sequence[Any]) -> Source:
    """Convert a row of the statement `source_access`."""
    return Source(*row[:6], *(tuple(row[6]), *row[7:]))


def entries_from_rows(rows: Iterable[Sequence[Any]]) -> list[CatalogEntry]:
    """Convert rows of ENTRY_COLUMNS; entries that are deleted meanwhile are left out."""
    return [
        _entry_from_row(row)
        for row in rows
        if row[_SKILL_ID] is not None and row[_STATE] is not None
    ]


def _entry_from_row(row: Sequence[Any]) -> CatalogEntry:
    return entry_from_row(
        default if value is None else value
        for value, default in zip(row, _ENTRY_DEFAULTS, strict=True)
    )


def links_from_rows(rows: Iterable[Sequence[Any]]) -> list[Link]:
    """Convert rows of owner, source, target, type, weight and evidence.

    A link that is deleted while the statement runs may have nulls in any of these values, because
    Neo4j reads the latest committed values. Such a link is left out.
    """
    return [
        Link(owner, source, target, _LINK_TYPES[kind], weight, evidence)
        for owner, source, target, kind, weight, evidence in filter(is_complete, rows)
    ]


def link_to_row(link: Link) -> dict[str, Any]:
    """Return the parameters of `add_links` and `delete_links` for one link."""
    return {
        "owner": link.owner,
        "source": link.source,
        "target": link.target,
        "type": link.type.name,
        "weight": float(link.weight),
        "evidence": link.evidence,
    }


def features_from_rows(rows: Iterable[Sequence[Any]]) -> dict[str, LinkFeatures]:
    """Convert rows of the statement `link_features`; return them by skill.

    Skills that are withdrawn meanwhile are left out, as in `links_from_rows`.
    """
    # The name may be null, since it may be empty.
    complete = (row for row in rows if is_complete([*row[:_NAME], *row[_NAME + 1 :]]))
    return {row[0]: features_from_row(row) for row in complete}


def adjacency_from_row(ends: Iterable[Sequence[Any]], totals: Iterable[Sequence[Any]]) -> Adjacency:
    """Convert a row of `adjacency`: ends (skill_id, type, forward, weight), totals (…, sum).

    Totals are (type, forward, sum). Links that are deleted meanwhile are left out, as in
    `links_from_rows`.
    """
    return Adjacency(
        tuple(
            Neighbour(other, _LINK_TYPES[kind], forward, weight)
            for other, kind, forward, weight in filter(is_complete, ends)
        ),
        {
            (_LINK_TYPES[kind], forward): total
            for kind, forward, total in filter(is_complete, totals)
        },
    )


def is_complete(row: Sequence[Any]) -> bool:
    """Return whether no value is null; values of deleted nodes and links may be null."""
    return None not in row


def index_key(name: str) -> str:
    """Return the index key of a normalised name; long names are hashed.

    Neo4j refuses keys of more than 8 kB.
    """
    encoded = name.encode()
    if len(encoded) <= _MAX_KEY_BYTES:
        return name
    return f"{name[:100]}#{hashlib.sha256(encoded).hexdigest()}"
