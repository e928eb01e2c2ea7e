"""Page: vectors for the sections of published skills (spec §4.4, the second stage)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

from config.errors import TransientError
from graph.links.passage_links import link_passages
from graph.protocol import PassageProjector, SkillState
from search.protocol import StoredRevision, Vector
from skills.passages import section_texts
from skills.record import RevisionKey
from tasks.encode import encode_cached, supports_language
from tasks.policies import EMBED_SECTIONS, Deadline, DeadlineExceededError
from tasks.services import Services

_BATCH = 16
_BACKLOG = 20_000
_NICENESS = 15
_YIELD_SECONDS = 0.02
_MAX_YIELD_SECONDS = 0.5


def embed_sections(
    services: Services, deadline: Deadline, skill_ids: Sequence[str]
) -> dict[str, object]:
    """Embed the sections of the published revisions of these skills; idempotent.

    Whoever ends last sends what is still unpaged, so that nothing waits for the reconciler.
    """
    lower_thread_priority()
    done: list[RevisionKey] = []
    try:
        _yield_to_ingest(services)
        keys = [
            RevisionKey(entry.skill_id, entry.seq)
            for entry in services.graph.get_entries(skill_ids)
            if entry.state is SkillState.PUBLISHED and not entry.embedded
        ]
        revisions = list(services.index.get_revisions(keys).values())
        vectors = embed_revisions(services, revisions)
        deadline.check("page")
        _project_passages(services, revisions, vectors)
        done = [revision.key for revision in revisions]
        services.graph.mark_embedded(done)
    finally:
        left = services.coordinator.add_embed_tasks(-1)
    if done and not left and not services.coordinator.pending_ingest_tasks:
        send_unembedded_skills(services)
    return {"embedded": len(done)}


def _project_passages(
    services: Services, revisions: Sequence[StoredRevision], vectors: dict[RevisionKey, Vector]
) -> None:
    """Show the passages and their links in the graph, where the settings say so."""
    graph = services.graph
    if services.settings.servers.neo4j_passages and isinstance(graph, PassageProjector):
        for revision in revisions:
            links = link_passages(revision.parsed, vectors.get(revision.key))
            graph.project_passages(revision.key, revision.parsed, links)


def split_embed_batch(services: Services, skill_ids: Sequence[str], error: BaseException) -> None:
    """After an error that is nobody's in particular: each skill alone.

    An error that may pass is left to the reconciler.

    A skill that still fails alone stays unpaged, as the services' trouble says.
    """
    waits = isinstance(error, TransientError)
    if waits and not isinstance(error, DeadlineExceededError):
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            send_embed_tasks(services, [skill_id])
    else:
        services.coordinator.task_error = (
            f"paging {skill_ids[0]} failed: {type(error).__name__}: {error}"
        )


def send_unembedded_skills(services: Services) -> int:
    """Send every published skill without section vectors to be paged, most used first."""
    waiting = [key.skill_id for key in services.graph.list_awaiting_embedding(_BACKLOG)]
    send_embed_tasks(services, waiting)
    return len(waiting)


def send_embed_tasks(services: Services, skill_ids: Sequence[str]) -> None:
    """Send skills to be paged, in batches and in this order."""
    for start in range(0, len(skill_ids), _BATCH):
        services.coordinator.add_embed_tasks(1)
        services.send_task(EMBED_SECTIONS.name, list(skill_ids[start : start + _BATCH]))


def lower_thread_priority() -> None:
    """Let queries and ingest have the processor first, where threads have a priority.

    A thread that stands further back already stays there: coming forward is a privilege.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, thread) < _NICENESS:
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)


def _yield_to_ingest(services: Services) -> None:
    """Wait a little while skills are on their way to being searchable."""
    end = time.monotonic() + _MAX_YIELD_SECONDS
    while services.coordinator.pending_ingest_tasks and time.monotonic() < end:
        time.sleep(_YIELD_SECONDS)


def embed_revisions(
    services: Services, revisions: Sequence[StoredRevision], in_bulk: bool = True
) -> dict[RevisionKey, Vector]:
    """Embed the sections of revisions, each (sections, dimension), and store the vectors.

    All texts are encoded together, since batches of like length are fastest. Skills in a language
    that the encoder does not know get none. A process that may only read returns the vectors
    without storing them.
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
