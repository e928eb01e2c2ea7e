"""What a library holds and how far its work is, as plain data."""

from __future__ import annotations

from typing import Any

from config.settings import Settings
from graph.protocol import SkillGraph
from tasks.journal import Journal


def status_of(
    settings: Settings, graph: SkillGraph, journal: Journal, serving: bool, trouble: str = ""
) -> dict[str, Any]:
    """Counts of the catalog, open events and queries, the sources, and why work does not go on."""
    counts = graph.counts()
    published = counts.get("published", 0)
    return {
        "home": str(settings.home),
        "serving": serving,
        "trouble": trouble,
        "encoder": settings.encoder.model,
        "skills": {
            "published": published,
            "failed": counts.get("failed", 0),
            "removed": counts.get("removed", 0),
            "waiting": counts.get("waiting", 0),
        },
        "paged": counts.get("paged", 0),
        "paging_done": round(counts.get("paged", 0) / published, 4) if published else 1.0,
        "unlinked": counts.get("unlinked", 0),
        "links": counts.get("links", 0),
        "open_events": len(journal.open_jobs("event")),
        "open_queries": len(journal.open_jobs("query")),
        "sources": [
            {
                "source_id": source.source_id,
                "kind": source.kind,
                "root": source.root,
                "last_success": source.last_success,
            }
            for source in graph.sources()
        ],
    }
