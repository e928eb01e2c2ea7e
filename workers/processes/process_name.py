"""Process names that are unique across machines and restarts."""

from __future__ import annotations

import os
import socket
import uuid


def unique_process_name() -> str:
    """Return host name, process id and random digits, as containers can share the first two."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
