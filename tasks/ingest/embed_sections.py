"""Page: vectors for the sections of published skills (spec §4.4, the second stage)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

from config.errors import TransientError
from graph.links.passage_links import passage_links
from graph.protocol import PassageGraph, State
from search.protocol import StoredRevision, Vector
from skills.passages import section_texts
from skills.record import RevisionKey
from tasks.embedding import encode_cached, is_known
from tasks.policies import PAGE, Deadline, DeadlineExceededError
from tasks.services import Services

_BATCH = 16
_BACKLOG = 20_000
_NICENESS = 15
_YIELD_SECONDS = 0.02
_LONGEST_YIELD_SECONDS = 0.5


def page(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Embed the sections of the published revisions of these skills; idempotent.

    Whoever ends last sends what is still unpaged, so that nothing waits for the reconciler.
    """
    lower_priority()
    done: list[RevisionKey] = []
    try:
        _let_ingest_pass(services)
        keys = [
            RevisionKey(entry.skill_id, entry.seq)
            for entry in services.graph.entries(skill_ids)
            if entry.state is State.PUBLISHED and not entry.paged
        ]
        revisions = list(services.index.read(keys).values())
        vectors = page_revisions(services, revisions)
        deadline.check("page")
        _project(services, revisions, vectors)
        done = [revision.key for revision in revisions]
        services.graph.mark_paged(done)
    finally:
        left = services.activity.page(-1)
    if done and not left and not services.activity.ingesting:
        send_unpaged(services)
    return {"paged": len(done)}


def _project(
    services: Services, revisions: Sequence[StoredRevision], vectors: dict[RevisionKey, Vector]
) -> None:
    """Show the passages and their links in the graph, where the settings say so."""
    graph = services.graph
    if services.settings.servers.neo4j_passages and isinstance(graph, PassageGraph):
        for revision in revisions:
            links = passage_links(revision.parsed, vectors.get(revision.key))
            graph.project_passages(revision.key, revision.parsed, links)


def split_pages(services: Services, skill_ids: Sequence[str], error: BaseException) -> None:
    """After an error that is nobody's in particular: each skill alone.

    An error that may pass is left to the reconciler.

    A skill that still fails alone stays unpaged, as the services' trouble says.
    """
    if isinstance(error, TransientError) and not isinstance(error, DeadlineExceededError):
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            send_pages(services, [skill_id])
    else:
        services.activity.trouble = f"paging {skill_ids[0]} failed: {type(error).__name__}: {error}"


def send_unpaged(services: Services) -> int:
    """Send every published skill without section vectors to be paged, most used first."""
    waiting = [key.skill_id for key in services.graph.unpaged(_BACKLOG)]
    send_pages(services, waiting)
    return len(waiting)


def send_pages(services: Services, skill_ids: Sequence[str]) -> None:
    """Send skills to be paged, in batches and in this order."""
    for start in range(0, len(skill_ids), _BATCH):
        services.activity.page(1)
        services.send(PAGE.name, list(skill_ids[start : start + _BATCH]))


def lower_priority() -> None:
    """Let queries and ingest have the processor first, where threads have a priority.

    A thread that stands further back already stays there: coming forward is a privilege.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, thread) < _NICENESS:
            os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)


def _let_ingest_pass(services: Services) -> None:
    """Wait a little while skills are on their way to being searchable."""
    end = time.monotonic() + _LONGEST_YIELD_SECONDS
    while services.activity.ingesting and time.monotonic() < end:
        time.sleep(_YIELD_SECONDS)


def page_revisions(
    services: Services, revisions: Sequence[StoredRevision], in_bulk: bool = True
) -> dict[RevisionKey, Vector]:
    """Embed the sections of revisions, each (sections, dimension), and store the vectors.

    All texts are encoded together, since batches of like length are fastest. Skills in a language
    that the encoder does not know get none. A process that may only read returns the vectors
    without storing them.
    """
    encoder = services.encoder.get()
    texts = [
        section_texts(revision.parsed) if is_known(encoder, revision.parsed) else ()
        for revision in revisions
    ]
    flat = [text for section in texts for text in section]
    if not flat:
        return {}
    vectors = encode_cached(services, flat, in_bulk)
    paged, start = {}, 0
    for revision, section in zip(revisions, texts, strict=True):
        own = vectors[start : start + len(section)]
        start += len(section)
        if section:
            paged[revision.key] = own
            if services.writable:
                services.index.put_section_vectors(revision.key, revision.section_hashes, own)
    return paged
