"""What a library holds, in a form in which two libraries can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config.settings import EncoderSettings, Settings
from graph.local.store import SqliteSkillGraph
from graph.neo4j.store import Neo4jSkillGraph
from graph.protocol import SkillGraph
from graph.records import SkillState
from search.elastic.index import ElasticsearchIndex
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
from search.protocol import SearchIndex
from skills.record import RevisionKey
from tasks.broker.redis_connection import connect
from tasks.journal.protocol import Journal
from tasks.journal.redis import RedisJournal
from tasks.journal.sqlite import SqliteJournal

Library = Path | Settings
"""An embedded library by its home, or a distributed one by its settings."""


def snapshot(library: Library) -> dict[str, Any]:
    """Everything that a library holds apart from numbers and times, by skill id."""
    with _opened(library) as (graph, index, _):
        return {
            entry.skill_id: _skill(graph, index, entry)
            for entry in graph.get_entries()
            if entry.state is not SkillState.REMOVED
        }


def differences(one: Library, other: Library) -> dict[str, Any]:
    """What two libraries hold differently: pairs of values by skill id and field."""
    left, right = snapshot(one), snapshot(other)
    found: dict[str, Any] = {}
    for skill_id in sorted(left.keys() | right.keys()):
        here, there = left.get(skill_id, {}), right.get(skill_id, {})
        fields = [name for name in here.keys() | there.keys() if here.get(name) != there.get(name)]
        if fields:
            found[skill_id] = {name: (here.get(name), there.get(name)) for name in sorted(fields)}
    return found


@contextmanager
def _opened(library: Library) -> Iterator[tuple[SkillGraph, SearchIndex, Journal]]:
    identity = encoder_identity(EncoderSettings())
    graph: SkillGraph
    index: SearchIndex
    journal: Journal
    if isinstance(library, Settings):
        servers = library.servers
        graph = Neo4jSkillGraph(servers, writable=False)
        index = ElasticsearchIndex(
            servers, identity.model, identity.dimension, writable=False, caching=False
        )
        journal = RedisJournal(connect(servers), servers)
    else:
        graph = SqliteSkillGraph(library / "graph.db", writable=False)
        index = LocalSearchIndex(
            library / "index", identity.model, identity.dimension, writable=False
        )
        journal = SqliteJournal(library / "journal.db")
    try:
        yield graph, index, journal
    finally:
        journal.close()
        index.close()
        graph.close()


def _skill(graph: SkillGraph, index: SearchIndex, entry: Any) -> dict[str, Any]:
    key = RevisionKey(entry.skill_id, entry.seq)
    revision = index.get_revisions([key]).get(key)
    sections = index.get_section_vectors([key]).get(key)
    return {
        "state": entry.state,
        "reason": entry.reason,
        "hash": entry.content_hash,
        "name": entry.name,
        "description": entry.description,
        "embedded": entry.embedded,
        "waiting": entry.requested_seq > max(entry.seq, 0) if entry.state == "published" else False,
        "links": sorted(
            (link.owner, link.source, link.target, link.type, round(link.weight, 6), link.evidence)
            for link in graph.get_links([entry.skill_id])[entry.skill_id]
        ),
        "parsed": None if revision is None else revision.parsed,
        "hashes": None if revision is None else revision.section_hashes,
        "sections": None if sections is None else len(sections),
    }


NOTHING_LEFT: dict[str, Any] = {
    "orphans": [],
    "missing": [],
    "twice": 0,
    "events": [],
    "waiting": 0,
    "unlinked": 0,
    "unembedded": 0,
}
"""What `leftovers` finds in a library where all work has come to its end."""


def leftovers(library: Library) -> dict[str, Any]:
    """What a library holds twice, holds without a reader, or has not finished."""
    with _opened(library) as (graph, index, journal):
        pointers = graph.get_changes_since(0).pointers
        published = {RevisionKey(name, seq) for name, seq in pointers.items() if seq}
        stored = index.list_keys()
        counts = graph.get_counts()
        return {
            "orphans": sorted(set(stored) - published),
            "missing": sorted(published - set(stored)),
            "twice": len(stored) - len(set(stored)),
            "events": journal.list_open_jobs("event"),
            "waiting": counts["waiting"],
            "unlinked": counts["unlinked"],
            "unembedded": counts["published"] - counts["embedded"],
        }
