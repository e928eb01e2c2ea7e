"""Page: vectors for the sections of published skills (spec §4.4, the second stage)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from graph.protocol import State
from search.protocol import StoredRevision, Vector
from skills.paging import section_texts
from skills.record import RevisionKey
from tasks.ingest import encode_cached
from tasks.policies import Deadline
from tasks.services import Services

_TEXTS_AT_ONCE = 64
_YIELD_SECONDS = 0.05


def page(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Embed the sections of the published revisions of these skills; idempotent."""
    keys = [
        RevisionKey(entry.skill_id, entry.seq)
        for entry in services.graph.entries(skill_ids)
        if entry.state is State.PUBLISHED and not entry.paged
    ]
    done = []
    for revision in services.index.read(keys).values():
        _let_ingest_pass(services, deadline)
        page_revision(services, revision)
        done.append(revision.key)
        deadline.check("page")
    services.graph.mark_paged(done)
    return {"paged": len(done)}


def page_revision(services: Services, revision: StoredRevision) -> Vector:
    """Embed the sections of one revision, (sections, dimension), and store the vectors.

    A process that may only read returns them without storing.
    """
    texts = section_texts(revision.parsed)
    if not texts:
        return np.empty((0, services.encoder.get().dimension), np.float32)
    vectors = encode_cached(services, texts)
    if services.writable:
        services.index.put_section_vectors(revision.key, revision.section_hashes, vectors)
    return vectors


def _let_ingest_pass(services: Services, deadline: Deadline) -> None:
    """Wait while skills are on their way to being searchable, half the time limit at most."""
    patience = deadline.remaining() / 2
    while services.activity.ingesting and deadline.remaining() > patience:
        time.sleep(_YIELD_SECONDS)
