"""A repository that is pushed to, and a server of git's own program for it, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.servers.loopback import serving

_IDENTITY = {
    "GIT_AUTHOR_NAME": "Ana",
    "GIT_AUTHOR_EMAIL": "ana@example.com",
    "GIT_COMMITTER_NAME": "Ana",
    "GIT_COMMITTER_EMAIL": "ana@example.com",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class PushedRepository:
    """A bare repository `NAME.git` below a folder, and a working tree that pushes to it.

    tree: where files are written. Commits are pushed as soon as they are made.
    """

    def __init__(self, folder: Path, name: str = "skills") -> None:
        self.bare = folder / f"{name}.git"
        self.tree = folder / f"{name}-tree"
        if not self.tree.exists():
            self.tree.mkdir(parents=True)
            self.git("init", "-q", "--bare", "-b", "main", str(self.bare))
            self.git("init", "-q", "-b", "main")
            self.git("remote", "add", "origin", f"../{self.bare.name}")

    def copied(self, folder: Path) -> PushedRepository:
        """A copy of both below another folder, made without git."""
        shutil.copytree(self.bare.parent, folder, symlinks=True)
        return PushedRepository(folder, self.bare.stem)

    def git(self, *arguments: str) -> str:
        """Run git in the working tree; its output."""
        run = subprocess.run(
            ["git", *arguments],
            cwd=self.tree,
            env={**os.environ, **_IDENTITY},
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        )
        return run.stdout.strip()

    def commit(self, message: str = "change") -> str:
        """Commit all there is; the commit."""
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def push(self, message: str = "change", branch: str = "main") -> str:
        """Commit all there is and push it by force; the commit."""
        commit = self.commit(message)
        self.publish(branch)
        return commit

    def publish(self, branch: str = "main") -> None:
        """Push what is committed by force."""
        self.git("push", "-q", "--force", "origin", f"HEAD:refs/heads/{branch}")


class Gate:
    """Requests wait at it while it is shut. waiting: how many came to a shut gate."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.waiting = 0

    def shut(self) -> None:
        """Keep requests waiting from now on."""
        self.waiting = 0
        self._open.clear()

    def open(self) -> None:
        """Let all pass."""
        self._open.set()

    def pass_through(self) -> None:
        """Wait until it is open."""
        if not self._open.is_set():
            self.waiting += 1
            self._open.wait(280)


def _backend(folder: Path, request: BaseHTTPRequestHandler, body: bytes) -> bytes:
    """What `git http-backend` answers to a request: head and body, as CGI has them."""
    asked = urlsplit(request.path)
    environment = {
        **os.environ,
        "GIT_PROJECT_ROOT": str(folder),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "REQUEST_METHOD": request.command,
        "PATH_INFO": asked.path,
        "QUERY_STRING": asked.query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
    }
    run = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True)
    return run.stdout


@contextmanager
def served_over_http(folder: Path, gate: Gate | None = None) -> Iterator[str]:
    """`git http-backend` for the repositories below a folder; yields the address of the folder."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            # Git closes connections that it has no more use for.
            with suppress(ConnectionError):
                super().handle()

        def do_GET(self) -> None:
            if gate is not None:
                gate.pass_through()
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self._body())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _answer(self, body: bytes) -> None:
            head, _, content = _backend(folder, self, body).partition(b"\r\n\r\n")
            named = dict(line.split(": ", 1) for line in head.decode("latin-1").splitlines())
            self.send_response(int(named.pop("Status", "200").split()[0]))
            for name, value in named.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(Handler) as address:
        yield address
