"""Runs a program that Linux kills when its parent ends: `tether.py PARENT PROGRAM ARGUMENT…`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that the kernel sends when the parent ends."""


def main() -> None:
    """Request the signal, then execute the program."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() == parent:  # otherwise the parent has already ended
        os.execvp(command[0], command)


if __name__ == "__main__":
    main()
