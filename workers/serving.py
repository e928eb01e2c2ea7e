"""The process behind `serve`."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from config.errors import UsageError
from config.settings import Settings
from skills.events import SourceChanged
from workers.client import SOCKET
from workers.gateway import create_gateway
from workers.runtime import Runtime
from workers.watcher import Watcher

ORIGIN = "skillbus/serve"
_SOCKET_PATH_LIMIT = 104


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `--listen`; raises UsageError unless it is a loopback address."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address((host or "127.0.0.1").strip("[]"))
        number = int(port)
    except ValueError:
        raise UsageError(f"--listen {text}: write 127.0.0.1:PORT") from None
    if not address.is_loopback:
        raise UsageError(f"--listen {text}: only loopback addresses; the gateway has no tokens")
    if not 0 < number < 65536:
        raise UsageError(f"--listen {text}: a port is between 1 and 65535")
    return str(address), number


def run_serve(
    settings: Settings, address: tuple[str, int] | None, note: Callable[[str], None]
) -> None:
    """Run until SIGINT or SIGTERM; everything accepted is on disk then."""
    path = settings.home / SOCKET
    if len(str(path)) > _SOCKET_PATH_LIMIT:
        raise UsageError(f"{path} is too long for a socket; choose a shorter SKILLBUS_HOME")
    with Runtime(settings, writable=True) as runtime, Watcher(runtime):
        path.unlink(missing_ok=True)
        gateway = create_gateway(runtime)
        # Queries should not pay for loading the model and the library.
        threading.Thread(target=runtime.warm_up, name="skillbus-warm-up", daemon=True).start()
        for source in runtime.services.graph.sources():
            if Path(source.root).is_dir():
                runtime.submit(SourceChanged(source_id=source.source_id, root=source.root), ORIGIN)
        server = uvicorn.Server(_config(gateway, uds=str(path)))
        note(f"serving {settings.home} on {path}")
        try:
            if address is None:
                server.run()
            else:
                note(f"listening on http://{address[0]}:{address[1]}")
                public = create_gateway(runtime, on_a_port=True)
                second = uvicorn.Server(_config(public, host=address[0], port=address[1]))
                thread = threading.Thread(target=_run_beside, args=(second,), daemon=True)
                thread.start()
                server.run()
                second.should_exit = True
                thread.join()
        finally:
            path.unlink(missing_ok=True)


def _config(gateway: FastAPI, **where: Any) -> uvicorn.Config:
    return uvicorn.Config(gateway, log_level="warning", access_log=False, lifespan="off", **where)


def _run_beside(server: uvicorn.Server) -> None:
    """Run a server in a thread: signals are the first server's business."""
    import asyncio

    asyncio.run(server._serve())
