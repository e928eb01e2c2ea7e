"""Embed the sections of published skills, after their skill vectors."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

from graph.links.passage_links import link_passages
from graph.protocol import PassageProjector
from graph.records import SkillState
from search.protocol import StoredRevision, Vector
from skills.passages import section_texts
from skills.record import RevisionKey
from tasks.encode import encode_cached, supports_language
from tasks.ingest.next_tasks import send_unembedded
from tasks.policies import (
    EMBED_SECTIONS,
    EMBED_SKILLS,
    INGEST,
    Deadline,
    TaskPolicy,
)
from tasks.services import Services

_NICENESS = 15
_YIELD_CHECK_SECONDS = 0.02
_MAX_YIELD_SECONDS = 0.5


def embed_sections(
    services: Services, deadline: Deadline, skill_ids: Sequence[str]
) -> dict[str, object]:
    """Embed the sections of the published revisions of these skills; idempotent.

    The last of several tasks sends tasks for skills still without section vectors, so that these
    need not wait for the reconciler.
    """
    lower_thread_priority()
    done: list[RevisionKey] = []
    try:
        yield_to_tasks(services, INGEST, EMBED_SKILLS)
        keys = [
            entry.key
            for entry in services.graph.get_entries(skill_ids)
            if entry.state is SkillState.PUBLISHED and not entry.embedded
        ]
        revisions = list(services.index.get_revisions(keys).values())
        vectors = embed_revisions(services, revisions)
        deadline.check("embed sections")
        _project_passages(services, revisions, vectors)
        done = [revision.key for revision in revisions]
        services.graph.mark_embedded(done)
    finally:
        left = services.coordinator.add_pending(EMBED_SECTIONS.name, -1)
    if done and not left and not _is_any_pending(services, INGEST, EMBED_SKILLS):
        send_unembedded(services)
    return {"embedded": len(done)}


def _project_passages(
    services: Services, revisions: Sequence[StoredRevision], vectors: dict[RevisionKey, Vector]
) -> None:
    """Write the passages and their links to the graph, if `servers.neo4j_passages` is set."""
    graph = services.graph
    if services.settings.servers.neo4j_passages and isinstance(graph, PassageProjector):
        for revision in revisions:
            links = link_passages(revision.parsed, vectors.get(revision.key))
            graph.project_passages(revision.key, revision.parsed, links)


def lower_thread_priority() -> None:
    """Give this thread a lower priority than queries and ingest (Linux only).

    An already lower priority is kept: raising it needs a privilege.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, thread) < _NICENESS:
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)


def yield_to_tasks(services: Services, *others: TaskPolicy) -> None:
    """Wait for the end of the tasks `others`, which have priority, at most half a second."""
    end = time.monotonic() + _MAX_YIELD_SECONDS
    while _is_any_pending(services, *others) and time.monotonic() < end:
        time.sleep(_YIELD_CHECK_SECONDS)


def _is_any_pending(services: Services, *tasks: TaskPolicy) -> bool:
    return any(services.coordinator.count_pending(task.name) for task in tasks)


def embed_revisions(
    services: Services, revisions: Sequence[StoredRevision], in_bulk: bool = True
) -> dict[RevisionKey, Vector]:
    """Return section vectors of revisions, each (sections, dimension), and store them in the index.

    All texts are encoded together, since batches of texts of similar length are fastest. Skills in
    a language that the encoder does not support are left out. A read-only process stores nothing.
    """
    encoder = services.encoder.get()
    texts = [
        section_texts(revision.parsed) if supports_language(encoder, revision.parsed) else ()
        for revision in revisions
    ]
    flat = [text for section in texts for text in section]
    if not flat:
        return {}
    vectors = encode_cached(services, flat, in_bulk)
    embedded, start = {}, 0
    for revision, section in zip(revisions, texts, strict=True):
        own = vectors[start : start + len(section)]
        start += len(section)
        if section:
            embedded[revision.key] = own
            if services.writable:
                services.index.save_section_vectors(revision.key, revision.section_hashes, own)
    return embedded
