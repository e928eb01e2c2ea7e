"""Has the fork server run a command of a shell: `forked_command.py SOCKET ARGUMENT…`.

To the shell it is that command: streams, folder, environment, signals and exit code are passed on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Ask for the command, and wait for its end."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        job = {"args": sys.argv[2:], "env": dict(os.environ), "cwd": str(Path.cwd())}
        text = (json.dumps(job) + "\n").encode()
        sent = socket.send_fds(server, [text], [0, 1, 2])
        server.sendall(text[sent:])
        answers = server.makefile("r", encoding="utf-8")
        pid = json.loads(answers.readline())["started"]
        for number in SIGNALS:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code: int = json.loads(answers.readline())["code"]
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
