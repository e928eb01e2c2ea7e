"""Embed published skills: compute the two vectors of each for vector search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graph.records import SkillState
from skills.record import RevisionKey
from tasks.encode import encode_cached, encode_skills
from tasks.ingest.embed_sections import lower_thread_priority, yield_to_tasks
from tasks.ingest.next_tasks import send_unembedded
from tasks.metrics_recorder import time_stage
from tasks.policies import EMBED_SKILLS, INGEST, Deadline
from tasks.services import Services


def embed_skills(
    services: Services, deadline: Deadline, skill_ids: Sequence[str]
) -> dict[str, object]:
    """Store the skill vectors of the published revisions of these skills; idempotent.

    Queries find a skill by its words once it is published, and by these vectors from now on.
    """
    lower_thread_priority()
    done: list[RevisionKey] = []
    try:
        yield_to_tasks(services, INGEST)
        keys = [
            entry.key
            for entry in services.graph.get_entries(skill_ids)
            if entry.state is SkillState.PUBLISHED and not entry.has_vectors
        ]
        revisions = list(services.index.get_revisions(keys).values())
        if revisions:
            with time_stage(services.metrics, EMBED_SKILLS.name, "embed"):
                vectors = encode_skills(
                    services.encoder.get(), revisions, partial(encode_cached, services)
                )
            deadline.check("embed skills")
            with time_stage(services.metrics, EMBED_SKILLS.name, "index"):
                services.index.save_skill_vectors(vectors)
            done = list(vectors)
            services.graph.mark_vectors_stored(done)
    finally:
        left = services.coordinator.add_pending(EMBED_SKILLS.name, -1)
    if done and not left and not services.coordinator.count_pending(INGEST.name):
        send_unembedded(services)
    return {"embedded": len(done)}
