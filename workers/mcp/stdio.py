"""The MCP server of one agent, over standard input and output."""

from __future__ import annotations

import signal
import threading
import uuid
from typing import Any

import anyio
import structlog

from config.errors import SkillbusError
from config.settings import Settings
from workers.backend.factory import open_skill_reader
from workers.backend.selector import BackendSelector
from workers.mcp.server import create_server

log = structlog.get_logger()


def run_stdio(settings: Settings) -> None:
    """Serve until standard input ends.

    The library is opened and the models are loaded after the first response: agents start all their
    servers before they take input.
    """
    # This process only reads, so it may be ended at any point; an orderly end would wait for the
    # blocking read of standard input.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    backends, skill_reader = BackendSelector(settings), open_skill_reader(settings)
    session = f"mcp {uuid.uuid4().hex}"  # standard input is one connection
    server = create_server(settings, backends.select, skill_reader, session)
    warming = threading.Thread(target=_warm_up, args=(backends,), name="warm-up", daemon=True)

    async def warm_up_once(ctx: Any, call_next: Any) -> Any:
        answer = await call_next(ctx)
        if not warming.ident:
            warming.start()
        return answer

    server.middleware.append(warm_up_once)
    try:
        anyio.run(server.run_stdio_async)
    finally:
        if warming.ident:
            warming.join()
        backends.close()
        skill_reader.close()


def _warm_up(backends: BackendSelector) -> None:
    try:
        backends.warm_up()
    except SkillbusError as error:  # the first call reports it too
        log.warning("warm-up failed", reason=str(error))
