"""What a library holds and how far its work is, as plain data."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from config.settings import Settings
from graph.protocol import SkillGraph, Source
from tasks.coordination.protocol import Activity
from tasks.journal.protocol import Journal
from workers.queue.status_reporter import consumers_of_home


def status_of(
    settings: Settings, graph: SkillGraph, journal: Journal, serving: bool, trouble: str = ""
) -> dict[str, Any]:
    """Counts of the catalog, open events and queries, the sources, and why work does not go on."""
    return {
        "home": str(settings.home),
        "serving": serving,
        "trouble": trouble,
        "encoder": settings.encoder.model,
        **told_of_catalog(graph.counts()),
        **told_of_journal(journal),
        "sources": told_of_sources(graph.sources()),
        "submissions": consumers_of_home(settings.home),
    }


def told_of_catalog(counts: Mapping[str, int]) -> dict[str, Any]:
    """Skills by state, and how far paging and linking are."""
    published = counts.get("published", 0)
    return {
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
    }


def told_of_journal(journal: Journal) -> dict[str, Any]:
    """What was accepted and has not ended, since how many seconds, and what failed for good."""
    return {
        "open_events": journal.count_open("event"),
        "open_queries": journal.count_open("query"),
        "oldest_event_seconds": round(journal.age_of_oldest("event"), 1),
        "oldest_query_seconds": round(journal.age_of_oldest("query"), 1),
        "dead_letters": journal.count_letters(),
    }


def told_of_sources(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Each source, and how it stands with it."""
    return [told_of_source(source) for source in sources]


def told_of_source(source: Source) -> dict[str, Any]:
    """A source: when it was last read whole, and how many seconds ago (None: never).

    Of a git source also what is fetched, the commit that the library is in step with, and when
    and why the last fetch failed, where it did.
    """
    ago = round(max(0.0, time.time() - source.last_success), 1) if source.last_success else None
    told: dict[str, Any] = {
        "source_id": source.source_id,
        "kind": source.kind,
        "root": source.root,
        "last_success": source.last_success,
        "lag_seconds": ago,
    }
    if source.kind == "git":
        told |= {
            "branch": source.branch,
            "path": source.path,
            "licences": list(source.licences),
            "poll_seconds": source.poll_seconds,
            "commit": source.commit,
            "last_attempt": source.last_attempt,
            "last_error": source.last_error,
        }
    return told


def age_of_oldest_change(graph: SkillGraph, activity: Activity) -> float | None:
    """Seconds since the oldest change that waits for ingest was asked for; 0 when none waits,
    None when that was before this process began."""
    oldest = graph.waiting(1)
    if not oldest:
        return 0.0
    seq = oldest[0].wanted_seq
    request = activity.requests([seq]).get(seq)
    return None if request is None else round(max(0.0, time.time() - request.since), 1)
