"""Preparation of skills in processes of their own: threads of one process share one processor."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from typing_extensions import override

from config.errors import PermanentError
from tasks.ingest.preparation.child import BrokenPreparation
from tasks.ingest.preparation.prepare import (
    LocalPreparer,
    PreparationRequest,
    PreparationSettings,
    PreparedSkill,
    Preparer,
    UnreadableSkill,
)
from tasks.policies import Deadline, DeadlineExceededError

_STOP_SECONDS = 5.0
_MIN_BATCH = 4
"""Minimum batch for a child. Smaller batches are edits, or skills tried alone after their batch
failed."""

StartChild = Callable[[int], "subprocess.Popen[bytes]"]
"""Starts a process that runs `child.main` with the file descriptor of its connection."""


class _ChildEndedError(Exception):
    """The process of a child ended, by itself or killed, before its first answer."""


class _Child:
    """A process that prepares skills, used by one thread at a time."""

    def __init__(self, start: StartChild) -> None:
        ours, theirs = Pipe()
        with theirs:
            self._process = start(theirs.fileno())
        self._connection: Connection[Any, Any] = ours

    def prepare(
        self,
        requests: Sequence[PreparationRequest],
        settings: PreparationSettings,
        deadline: Deadline,
    ) -> Iterator[PreparedSkill | UnreadableSkill]:
        try:
            self._connection.send((requests, settings))
        except OSError as error:
            raise _ChildEndedError from error
        for number in range(len(requests)):
            if not self._connection.poll(deadline.remaining()):
                raise DeadlineExceededError("read: a skill was not parsed within the time limit")
            try:
                outcome = self._connection.recv()
            except (EOFError, OSError) as error:  # it may end in the middle of a message
                if number == 0:
                    raise _ChildEndedError from error
                raise PermanentError("the process that parses skills was killed") from error
            if isinstance(outcome, BrokenPreparation):
                raise PermanentError(f"{requests[number].path}: the parser failed: {outcome.error}")
            yield outcome

    def end(self) -> None:
        """End the process, by force if it is busy."""
        self._connection.close()
        try:
            self._process.wait(0.0)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(_STOP_SECONDS)


class ProcessPreparer(Preparer):
    """Prepares batches in processes that start on demand and end when idle.

    start_child: starts a process. There are never more processes than threads that prepare at once.
    is_worth_it: returns whether enough work waits to start a process; otherwise the calling thread
    prepares, which for an edit takes less time than the start of a process.
    """

    def __init__(self, start_child: StartChild, is_worth_it: Callable[[], bool]) -> None:
        self._start_child = start_child
        self._is_worth_it = is_worth_it
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._local = LocalPreparer()

    @override
    def prepare(
        self,
        requests: Sequence[PreparationRequest],
        settings: PreparationSettings,
        deadline: Deadline,
    ) -> Iterator[PreparedSkill | UnreadableSkill]:
        if len(requests) < _MIN_BATCH or not self._is_worth_it():
            yield from self._local.prepare(requests, settings, deadline)
            return
        try:
            with self._borrow() as child:
                yield from child.prepare(requests, settings, deadline)
        except _ChildEndedError:
            # The child was idle for too long and has just ended; a new child has not.
            with self._borrow(new=True) as child:
                yield from child.prepare(requests, settings, deadline)

    @contextmanager
    def _borrow(self, *, new: bool = False) -> Iterator[_Child]:
        """Yield a child for the thread; a child that fails is not used again."""
        with self._lock:
            child = self._idle.pop() if self._idle and not new else None
        child = child or _Child(self._start_child)
        try:
            yield child
        except BaseException:
            child.end()
            raise
        with self._lock:
            self._idle.append(child)

    @override
    def close(self) -> None:
        with self._lock:
            children, self._idle = self._idle, []
        for child in children:
            child.end()
