"""Status of the processes that consume submissions, for `skillbus status` and `GET /v1/status`.

A distributed deployment shares it through Redis; an embedded one, which a single process serves,
has a file in its home. A report expires after some seconds, so a killed process disappears.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import structlog

from config.errors import SkillbusError
from tasks.coordination.protocol import Coordinator
from workers.library.user_files import write_atomically

log = structlog.get_logger()

REPORT_SECONDS = 1.5
_FRESH_SECONDS = 4 * REPORT_SECONDS
_FILE = "consumer.json"

ConsumerStatus = dict[str, Any]
"""JSON data of one consumer.

consumer: name of the process. broker: its address. connected. problem: why it is paused, ""
otherwise. waiting: messages that no consumer has received, None if unknown. recorded, refused,
replied: counts since its start. last_message: time of the last message, seconds since the epoch,
None before the first.
"""


class StatusReporter:
    """Reports the status of one process; a failed report is left to the next one."""

    def __init__(self, home: Path, coordinator: Coordinator) -> None:
        # Every command imports this module; only processes that consume need Redis.
        from tasks.coordination.redis import RedisCoordinator

        self._path = home / _FILE
        self._shared = coordinator if isinstance(coordinator, RedisCoordinator) else None

    def report(self, status: ConsumerStatus) -> None:
        """Publish the current status."""
        try:
            if self._shared is not None:
                self._shared.report_consumer(status)
            else:
                write_atomically(self._path, json.dumps(status).encode())
        except SkillbusError as error:
            log.debug("status not reported", reason=str(error))

    def clear(self) -> None:
        """Delete the status: this process stops consuming."""
        with contextlib.suppress(SkillbusError, OSError):
            if self._shared is not None:
                self._shared.deregister_consumer()
            else:
                self._path.unlink(missing_ok=True)


def read_consumer_statuses(home: Path) -> list[ConsumerStatus]:
    """Return the recent status of the process that consumes for a home; at most one."""
    path = home / _FILE
    try:
        if time.time() - path.stat().st_mtime > _FRESH_SECONDS:
            return []
        return [json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
