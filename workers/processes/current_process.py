"""The current process: its name, sockets that it inherited, its stop by signals, and garbage
collection that suits a process of requests."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_YOUNG_OBJECTS = 10_000
"""Number of new objects that starts a collection. With Python's default of 700, a larger page or
query makes a full collection likely, which stops the process for 30 to 40 ms."""

_LAST_STREAM = 2
_PARENT_POLL_SECONDS = 1.0

_DEFAULT_THRESHOLDS = gc.get_threshold()


def unique_process_name() -> str:
    """Return a name with host name, process id and random digits.

    Processes of different containers can share host name and process id.
    """
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"


def detach_inherited_sockets() -> None:
    """Replace the sockets that this process inherited, but for its streams, by the null device.

    As long as a child holds a connection of its parent, epoll reports it after the parent has
    closed it, and nothing can unregister it: the parent would use a whole processor.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for file in Path("/dev/fd").iterdir():
        number = int(file.name)
        with contextlib.suppress(OSError):  # that of the listed folder is closed by now
            if number > _LAST_STREAM and stat.S_ISSOCK(os.fstat(number).st_mode):
                # A number that is closed here could be another file's when its owner closes it.
                os.dup2(null, number, inheritable=False)
    os.close(null)


def stop_with_parent(parent: int) -> None:
    """Start a thread that sends SIGTERM to this process once its parent is not `parent` any more.

    Once only: Celery ends a worker at a second signal without waiting for its tasks.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="skillbus-parent", daemon=True).start()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set.

    When uvicorn has ended, it raises the signal that stopped it again; that signal is ignored here.
    """
    stop_requested = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stop_requested.set())
    try:
        yield stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def freeze_loaded_objects() -> None:
    """Exclude all objects that exist now from garbage collection, and collect less often.

    Call it after modules, models and the library are loaded: they are never freed, and a full
    collection would spend 0.1 s and more on them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *_DEFAULT_THRESHOLDS[1:])


def unfreeze_loaded_objects() -> None:
    """Undo `freeze_loaded_objects`."""
    gc.unfreeze()
    gc.set_threshold(*_DEFAULT_THRESHOLDS)
