"""Link skills whose neighbourhood may have changed."""

from __future__ import annotations

from collections.abc import Sequence

from config import tracing
from skills.batches import batches
from tasks.ingest.next_tasks import send_link
from tasks.outcomes.links.mark_changed import has_unread_outcomes, mark_for_outcomes
from tasks.policies import LINK, Deadline
from tasks.services import Services

_BATCH_SKILLS = 200
_ALL_MARKS = 1 << 40


def link(services: Services, deadline: Deadline, ids: Sequence[str] = ()) -> dict[str, object]:
    """Link all skills that the catalog marks for linking; only one task of all processes does so at
    a time.

    Takes no ids. The transaction that moves a pointer marks skills; this task marks those whose
    links outcomes change. The transaction that writes the links clears the marks.
    """
    del ids
    linked, more = 0, True
    while more:
        with services.coordinator.try_lock("link") as acquired:
            if not acquired:
                break  # the task that holds the lock checks for marks again when it is done
            mark_for_outcomes(services)
            linked += _link_marked(services, deadline)
        more = bool(services.graph.list_awaiting_linking(1)) or has_unread_outcomes(services)
        if more and _is_half_over(deadline):
            send_link(services)
            break
    return {"linked": linked}


def _link_marked(services: Services, deadline: Deadline) -> int:
    def yield_to_queries() -> None:
        # Later the task does not wait: the first read of all skills has to end in its time.
        if not _is_half_over(deadline):
            services.coordinator.yield_to_queries()

    def before_batch() -> None:
        deadline.check("read the skills to link")  # a retry goes on from here
        yield_to_queries()

    # Read once, not for each batch: a first import marks every skill.
    marks = services.graph.list_awaiting_linking(_ALL_MARKS)
    pending = {skill_id for skill_id, _ in marks}
    linked = 0
    for some in batches(marks, _BATCH_SKILLS):
        if _is_half_over(deadline):
            break
        with _start_span(services, some):
            services.linker.relink(some, yield_to_queries, pending, before_batch)
        linked += len(some)
    return linked


def _start_span(services: Services, marks: Sequence[tuple[str, int]]) -> tracing.OpenSpan:
    """Start a span of the task's trace, linked to the traces of the changes that led to the
    marks."""
    if not tracing.is_tracing():
        return tracing.NO_SPAN
    entries = services.graph.get_entries([skill_id for skill_id, _ in marks])
    requests = services.coordinator.get_ingest_requests(
        sorted({entry.requested_seq for entry in entries})
    )
    contexts = dict.fromkeys(one.context for one in requests.values())
    return tracing.trace(
        "link skills",
        "internal",
        [tracing.current_context(), *contexts],
        {"skillbus.skills": len(marks)},
    )


def _is_half_over(deadline: Deadline) -> bool:
    return deadline.remaining() < LINK.time_limit / 2
