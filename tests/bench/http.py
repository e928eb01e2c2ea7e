"""What HTTP costs: `POST /v1/queries` with `Prefer: wait` over the time in the process itself.

    python -m tests.bench.http [QUERIES]

A made-up library of ten skills is asked in turn over a loopback port and in the process that serves
it. Prints the medians in milliseconds, and their difference.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import uvicorn

from config.logs import configure_logging
from config.settings import Settings
from skills.events import QueryAsked, SourceChanged
from tests.support.library import TOPICS, write_topics
from workers.gateway.app import create_gateway
from workers.gateway.door import Access
from workers.gateway.tokens import Scope, Tokens
from workers.runtime import Runtime

ORIGIN = "skillbus/bench"


def measure(queries: int) -> dict[str, float]:
    """Medians of both ways and of their difference, in milliseconds."""
    configure_logging("error")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        settings = Settings(home=base / "home")
        with Runtime(settings, writable=True) as runtime:
            root = write_topics(base / "crafts")
            runtime.submit(SourceChanged(source_id="crafts", root=str(root)), ORIGIN)
            while runtime.progress().get("published", 0) < len(TOPICS):
                time.sleep(0.1)
            tokens = Tokens(base / "tokens.json")
            secret = tokens.add("bench", Scope.READ)
            with socket.socket(proto=socket.IPPROTO_TCP) as port:  # as `serve` binds it
                port.bind(("127.0.0.1", 0))
                gateway = create_gateway(runtime, Access(tokens))
                server = uvicorn.Server(
                    uvicorn.Config(gateway, log_level="warning", lifespan="off")
                )
                thread = threading.Thread(target=lambda: asyncio.run(server._serve([port])))
                thread.start()
                try:
                    address = f"http://127.0.0.1:{port.getsockname()[1]}"
                    headers = {"Authorization": f"Bearer {secret}", "Prefer": "wait=30"}
                    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
                        return _compare(runtime, client, queries)
                finally:
                    server.should_exit = True
                    thread.join()


def _compare(runtime: Runtime, client: httpx.Client, queries: int) -> dict[str, float]:
    tasks = [f"{text}, number {n}" for n in range(queries) for text in TOPICS.values()][:queries]

    def over_http(task: str) -> None:
        answer = client.post("/v1/queries", json={"task": task})
        assert answer.status_code == 200, answer.text
        time.sleep(0.06)  # the bench is one token among its limits

    def inside(task: str) -> None:
        runtime.answer(QueryAsked(task=task), ORIGIN)
        time.sleep(0.06)

    for task in tasks[:5]:
        over_http(task)
        inside(task)
    times: dict[str, list[float]] = {"inside": [], "over_http": []}
    for task in tasks:
        times["inside"].append(_timed(inside, task))
        times["over_http"].append(_timed(over_http, task))
    found = {f"{name}_p50": statistics.median(values) for name, values in times.items()}
    differences = [h - i for h, i in zip(times["over_http"], times["inside"], strict=True)]
    return found | {"beyond_p50": statistics.median(differences)}


def _timed(ask: Callable[[str], None], task: str) -> float:
    started = time.perf_counter()
    ask(task)
    return (time.perf_counter() - started - 0.06) * 1000


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(json.dumps({name: round(value, 2) for name, value in measure(count).items()}, indent=2))
