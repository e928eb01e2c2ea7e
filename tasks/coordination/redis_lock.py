"""Locks in Redis: leased, renewed while they are held, and taken over from a dead holder."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis import Redis
from redis.exceptions import LockError
from redis.lock import Lock

from config.errors import TransientError
from config.server_settings import ServerSettings
from tasks.broker.redis_connection import PREFIX, translate_errors
from tasks.coordination.redis_workers import ALIVE_SECONDS, get_worker_id

LEASE_SECONDS = ALIVE_SECONDS
_LOCK = PREFIX + "lock:"


@contextmanager
def try_redis_lock(
    client: Redis, settings: ServerSettings, name: str, process: str
) -> Iterator[bool]:
    """Take the lock `name` for the block without waiting; yields whether it was taken.

    The lock is a lease of `LEASE_SECONDS` that a thread renews until the block ends. The lease of a
    dead process of the same worker is taken over at once, any other lease when it has expired.

    process: id of this process, as in `redis_workers`. Raises TransientError while Redis is away.
    """
    lock = Lock(client, _LOCK + name, timeout=LEASE_SECONDS, blocking=False, thread_local=False)
    token = f"{process}|{os.getpid()}|{uuid.uuid4().hex}"
    with translate_errors(settings):
        taken = lock.acquire(token=token)
        if not taken and _release_dead_holder(client, lock, process, token):
            taken = lock.acquire(token=token)
    if not taken:
        yield False
        return
    done = threading.Event()
    renewal = threading.Thread(target=_renew_lease, args=(lock, settings, done), daemon=True)
    renewal.start()
    try:
        yield True
    finally:
        done.set()
        renewal.join()
        # While Redis is away, the lease expires instead. Another process may also hold it by now.
        with suppress(TransientError), translate_errors(settings), suppress(LockError):
            lock.release()


def _renew_lease(lock: Lock, settings: ServerSettings, done: threading.Event) -> None:
    while not done.wait(LEASE_SECONDS / 4):
        # While Redis is away, no other process can take the lock either.
        with suppress(TransientError), translate_errors(settings), suppress(LockError):
            lock.reacquire()


def _release_dead_holder(client: Redis, lock: Lock, process: str, own_token: str) -> bool:
    """Release the lock if its holder is dead; return whether the lock is free now.

    own_token: holds the lock if the answer to the first of repeated calls was lost.
    """
    token = client.get(lock.name)
    if token is None:
        return True
    if token != own_token and not _is_dead(str(token), process):
        return False
    with suppress(LockError):  # another process released it first
        lock.do_release(str(token))
    return True


def _is_dead(token: str, process: str) -> bool:
    """Return whether the holder was a process of the same worker, hence on this machine, and has
    ended."""
    holder, pid, _ = token.rsplit("|", 2)
    if get_worker_id(holder) != get_worker_id(process):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's process has the id; the lease expires
        return False
    return False
