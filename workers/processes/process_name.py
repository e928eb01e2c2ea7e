"""Process names that are unique across machines and restarts."""

from __future__ import annotations

import os
import socket
import uuid


def unique_process_name() -> str:
    """Host name, process id and random digits: processes of different containers can share both."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
