"""Names of the owners of claims, from which processes of the machine see whether an owner has
ended."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

_PROC = Path("/proc")


def new_claim_owner() -> str:
    """Return a new name of an owner in this process."""
    pid = os.getpid()
    return f"{_machine()}|{pid}|{_start_time(pid)}|{uuid.uuid4().hex}"


def has_ended(owner: str) -> bool:
    """Return whether an owner was a process of this machine and container that has ended."""
    machine, _, rest = owner.partition("|")
    pid, _, rest = rest.partition("|")
    started = rest.partition("|")[0]
    if machine != _machine() or not pid.isdigit():
        return False
    return _start_time(int(pid)) != started


def _machine() -> str:
    """Return this boot of the machine and this namespace of process ids; "" if unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return when a process started, in ticks since the boot; "" without such a process, or if it
    is a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program, in parentheses, may have spaces and parentheses of its own.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
