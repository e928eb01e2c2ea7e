"""Link: skills whose neighbourhood may have changed (spec §4.7)."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.policies import LINK, Deadline
from tasks.services import Services

_MARKS_AT_ONCE = 200


def link(services: Services, deadline: Deadline, ids: Sequence[str] = ()) -> dict[str, object]:
    """Link whatever is marked in the catalog; run by one consumer, so it never races itself.

    Takes no ids: marks are set in the transaction that moves a pointer, and cleared in the one
    that writes the links.
    """
    del ids
    linked = 0
    while marks := services.graph.unlinked(_MARKS_AT_ONCE):
        services.linker.relink(marks)
        linked += len(marks)
        if deadline.remaining() < LINK.seconds / 2:
            services.send(LINK.name, [])
            break
    return {"linked": linked}
