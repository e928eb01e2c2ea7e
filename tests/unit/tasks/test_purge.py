"""Stores overwrite what a purge deleted, also after one that cannot."""

from __future__ import annotations

import pytest

from config.errors import TransientError
from tasks.history.purge import overwrite_deleted


def test_a_store_that_cannot_overwrite_now_stops_no_other() -> None:
    overwritten: list[str] = []

    def refuse() -> None:
        raise TransientError("a node is down")

    with pytest.raises(TransientError, match="a node is down"):
        overwrite_deleted(
            [lambda: overwritten.append("index"), refuse, lambda: overwritten.append("journal")]
        )
    assert overwritten == ["index", "journal"]
