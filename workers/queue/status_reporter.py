"""How the processes that take submissions get on, told to whoever asks for the status.

Servers share it through Redis; of an embedded library, which one process has, it is a file of the
home. What was told is forgotten after some seconds: a process that was killed tells nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from config.errors import SkillbusError
from workers.library.user_files import write_atomically

if TYPE_CHECKING:
    from workers.backend.store_backend import StoreBackend

log = structlog.get_logger()

REPORT_SECONDS = 1.5
_FRESH_SECONDS = 4 * REPORT_SECONDS
_FILE = "consumer.json"

ConsumerStatus = dict[str, Any]
"""consumer: name of the process. broker: its address. connected; problem: why work does not go on,
"" while it does. waiting: messages that nobody has in hand, None: not known. recorded, refused,
replied: counts since it began. last_message: when the last one came, seconds since the epoch, None
before the first."""


class StatusReporter:
    """Tells for one process. What cannot be told now is told the next time."""

    def __init__(self, backend: StoreBackend) -> None:
        from tasks.coordination.redis import RedisCoordinator

        self._path = backend.settings.home / _FILE
        coordinator = backend.coordinator
        self._shared = coordinator if isinstance(coordinator, RedisCoordinator) else None

    def report(self, status: ConsumerStatus) -> None:
        """Say how it is now."""
        try:
            if self._shared is not None:
                self._shared.report_consumer(status)
            else:
                write_atomically(self._path, json.dumps(status).encode())
        except SkillbusError as error:
            log.debug("status not told", reason=str(error))

    def clear(self) -> None:
        """This process takes no submissions any more."""
        with contextlib.suppress(SkillbusError, OSError):
            if self._shared is not None:
                self._shared.deregister_consumer()
            else:
                self._path.unlink(missing_ok=True)


def read_consumer_statuses(home: Path) -> list[ConsumerStatus]:
    """What the process that takes submissions into a home's library told lately."""
    path = home / _FILE
    try:
        if time.time() - path.stat().st_mtime > _FRESH_SECONDS:
            return []
        return [json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
