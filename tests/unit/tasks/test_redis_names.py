"""Names in Redis: each store has names of its own, as some are deleted by what they begin with."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tasks.broker import redis_connection

_NAME = re.compile(r'PREFIX \+ "([^"]+)"')


def test_no_two_stores_share_a_name() -> None:
    tasks = Path(redis_connection.__file__).parents[1]
    names = Counter(
        name for path in tasks.rglob("*.py") for name in _NAME.findall(path.read_text("utf-8"))
    )
    assert len(names) > 20
    assert [name for name, count in names.items() if count > 1] == []
