"""Names of processes, unique over machines and restarts."""

from __future__ import annotations

import os
import socket
import uuid


def unique_process_name() -> str:
    """Host, process and a number of chance: containers share process numbers."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
