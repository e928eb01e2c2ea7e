"""Events as they come from outside."""

from __future__ import annotations

from typing import Any

from skills.events import SOURCE_CHANGED


def attributes(**changes: Any) -> dict[str, Any]:
    """The attributes of an event about a source, some of them changed."""
    return {
        "specversion": "1.0",
        "id": "1",
        "source": "test",
        "type": SOURCE_CHANGED,
        "time": "2030-01-02T03:04:05Z",
        "data": {"source_id": "team", "root": "/skills"},
    } | changes
