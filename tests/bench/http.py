"""What HTTP costs, and what a gateway does when many ask at once.

    python -m tests.bench.http beyond [--home HOME] [--queries N]
    python -m tests.bench.http load [--home HOME] [--clients N] [--seconds S]

`beyond` asks in turn over a loopback port and in the process that serves it, and prints medians in
milliseconds: of both, and of the difference of the two for one task.

`load` starts `skillbus serve --listen` and lets so many clients, each with a token of its own, ask
one query after the other: half with `Prefer: wait`, half by fetching the answer later. Clients
that are asked to retry do so at the time given. It prints the statuses, whether 429 and 503 said
when to retry, how many queries were accepted and never answered (`lost`), seconds from the first
request to the answer, and the server's memory in MB: resident, and its own share (PSS).

Both work on a copy of the home (which needs no `serve`), by default a made-up one of ten skills.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from config.logging import configure_logging
from config.settings import Settings
from deploy.stack.ports import free_port
from skills.events import QueryAsked, SourceChanged
from tests.bench.run import serving
from tests.support.samples.library import TOPICS, write_topics
from workers.backend.embedded import EmbeddedBackend
from workers.backend.serve_client import ServeClient
from workers.cli.common import open_catalog
from workers.http.access import AccessRules
from workers.http.app import create_gateway
from workers.http.tokens import TokenScope, TokenStore, open_token_store
from workers.processes.http_server import bind_socket, format_address, serve_in_thread

ORIGIN = "skillbus/bench"
PACE_SECONDS = 0.06
"""Between queries of `beyond`, which is one token among its limits."""
MEMORY_SECONDS = 5.0
ANSWER_SECONDS = 120.0
MEGABYTE = 2**20


@contextlib.contextmanager
def copied(home: Path | None) -> Iterator[Path]:
    """A home to work on: a copy, or a new one of ten skills."""
    with tempfile.TemporaryDirectory(prefix="skillbus-bench-") as folder:
        made = Path(folder) / "home"
        if home is not None:
            shutil.copytree(home, made, ignore=shutil.ignore_patterns("*.sock", "tokens.json"))
        else:
            with EmbeddedBackend(Settings(home=made), writable=True) as backend:
                root = write_topics(Path(folder) / "crafts")
                backend.submit(SourceChanged(source_id="crafts", root=str(root)), ORIGIN)
                while backend.get_progress().get("published", 0) < len(TOPICS):
                    time.sleep(0.1)
        yield made


def tasks_of(home: Path, seed: int = 5) -> list[str]:
    """What published skills say they are for, in an order drawn by chance."""
    with open_catalog(Settings(home=home)) as graph:
        entries = [entry for entry in graph.get_entries() if entry.description.strip()]
    random.Random(seed).shuffle(entries)
    return [entry.description[:300] for entry in entries[:2_000]]


# -- what HTTP costs
def beyond(home: Path, queries: int) -> dict[str, float]:
    """Medians of both ways and of their difference, in milliseconds."""
    settings = Settings(home=home)
    tokens = TokenStore(home / "tokens.json")
    secret = tokens.add("bench", TokenScope.READ)
    with EmbeddedBackend(settings, writable=True) as backend:
        backend.warm_up()
        tasks = list(itertools.islice(itertools.cycle(tasks_of(home)), queries))
        gateway = create_gateway(backend, AccessRules(tokens))
        address = ("127.0.0.1", free_port(set()))
        headers = {"Authorization": f"Bearer {secret}", "Prefer": "wait=30"}
        with (
            bind_socket(address) as port,
            serve_in_thread(gateway, settings, port),
            httpx.Client(
                base_url=f"http://{format_address(address)}", headers=headers, timeout=60
            ) as client,
        ):
            return _compare(backend, client, tasks)


def _compare(backend: EmbeddedBackend, client: httpx.Client, tasks: list[str]) -> dict[str, float]:
    numbers = itertools.count()

    def over_http(task: str) -> None:
        answer = client.post("/v1/queries", json={"task": f"{task} {next(numbers)}"})
        assert answer.status_code == 200, answer.text

    def inside(task: str) -> None:
        backend.answer_query(QueryAsked(task=f"{task} {next(numbers)}"), ORIGIN)

    for task in tasks[:5]:
        over_http(task)
        inside(task)
    times: dict[str, list[float]] = {"inside": [], "over_http": []}
    for task in tasks:
        times["inside"].append(_timed(inside, task))
        times["over_http"].append(_timed(over_http, task))
    found = {f"{name}_p50": statistics.median(values) for name, values in times.items()}
    differences = [h - i for h, i in zip(times["over_http"], times["inside"], strict=True)]
    return found | {"beyond_p50": statistics.median(differences), "queries": len(tasks)}


def _timed(ask: Callable[[str], None], task: str) -> float:
    started = time.perf_counter()
    ask(task)
    took = time.perf_counter() - started
    time.sleep(PACE_SECONDS)
    return took * 1000


# -- many at once
@dataclass
class Tally:
    """What the clients met. accepted: places of queries, each with when it was asked."""

    statuses: Counter[str] = field(default_factory=Counter)
    without_retry_after: int = 0
    seconds: list[float] = field(default_factory=list)
    accepted: dict[str, float] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)

    def note(self, what: str, answer: httpx.Response) -> None:
        """Count an answer."""
        self.statuses[f"{what} {answer.status_code}"] += 1
        if answer.status_code in (429, 503) and "retry-after" not in answer.headers:
            self.without_retry_after += 1


class Client:
    """Asks one query after the other. waits: with `Prefer: wait`; else it fetches the answer."""

    def __init__(self, address: str, secret: str, tally: Tally, waits: bool) -> None:
        headers = {"Authorization": f"Bearer {secret}"}
        self._http = httpx.AsyncClient(base_url=address, headers=headers, timeout=60)
        self._tally = tally
        self._headers = {"Prefer": "wait=30"} if waits else {}

    async def run(self, tasks: Iterator[str], until: float) -> None:
        """Ask until then, and fetch what is still out."""
        async with self._http:
            while time.monotonic() < until:
                await self._ask(next(tasks))

    async def _ask(self, task: str) -> None:
        started = time.monotonic()
        body = {"task": task}
        answer = await self._send("POST", "/v1/queries", json=body, headers=self._headers)
        if answer is None or answer.status_code not in (200, 202):
            return
        place = answer.headers["location"]
        self._tally.accepted[place] = started
        while answer is None or answer.status_code != 200 or _is_open(answer):
            if time.monotonic() - started > ANSWER_SECONDS:
                return
            await asyncio.sleep(0.1)
            answer = await self._send("GET", place)
        self._tally.seconds.append(time.monotonic() - started)
        self._tally.ended[answer.json()["state"]] += 1
        del self._tally.accepted[place]

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        what = f"{method} {'/v1/queries' if method == 'POST' else '/v1/queries/{id}'}"
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.TransportError as error:
            self._tally.statuses[f"{what} {type(error).__name__}"] += 1
            return None
        self._tally.note(what, answer)
        if answer.status_code in (429, 503):
            await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
        return answer


def _is_open(answer: httpx.Response) -> bool:
    return bool(answer.json()["state"] == "accepted")


def load(home: Path, clients: int, seconds: float) -> dict[str, Any]:
    """What so many clients met in this time, and the server's memory."""
    tokens = open_token_store(Settings(home=home))
    secrets = [tokens.add(f"client-{number}", TokenScope.READ) for number in range(clients)]
    address = ("127.0.0.1", free_port(set()))
    tally = Tally()
    with served(home, address) as server, watched(server) as memory:
        tasks = itertools.cycle(tasks_of(home))

        async def ask_all() -> None:
            until = time.monotonic() + seconds
            asking = [
                Client(
                    f"http://{format_address(address)}", secret, tally, waits=number % 2 == 0
                ).run(tasks, until)
                for number, secret in enumerate(secrets)
            ]
            await asyncio.gather(*asking)

        asyncio.run(ask_all())
    return {
        "clients": clients,
        "seconds": seconds,
        "statuses": dict(sorted(tally.statuses.items())),
        "without_retry_after": tally.without_retry_after,
        "ended": dict(tally.ended),
        "lost": len(tally.accepted),
        "answers_a_second": round(len(tally.seconds) / seconds, 1),
        "answer_seconds": _quantiles(tally.seconds),
        "memory": memory,
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=100)
    return {name: round(cuts[at], 2) for name, at in (("p50", 49), ("p95", 94), ("p99", 98))}


@contextlib.contextmanager
def served(home: Path, address: tuple[str, int], **environment: str) -> Iterator[psutil.Process]:
    """`skillbus serve` on the port, warm."""
    listen = ("--listen", format_address(address))
    with serving(home, *listen, SKILLBUS_LOG_LEVEL="error", **environment) as process:
        ServeClient(home).post("/v1/answers", {"task": "warm up"})
        yield process


@contextlib.contextmanager
def watched(server: psutil.Process) -> Iterator[list[dict[str, float]]]:
    """The server's memory every few seconds, in MB, from now to the end."""
    found: list[dict[str, float]] = []
    over = threading.Event()
    started = time.monotonic()

    def look() -> None:
        info = server.memory_full_info()
        now = time.monotonic() - started
        found.append(
            {
                "at": round(now, 1),
                "rss": round(info.rss / MEGABYTE, 1),
                "pss": round(info.pss / MEGABYTE, 1),
            }
        )

    def keep_looking() -> None:
        while not over.wait(MEMORY_SECONDS):
            look()

    look()
    thread = threading.Thread(target=keep_looking)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        look()


def main() -> None:
    """Measure what is named, and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("beyond", "load"))
    parser.add_argument("--home", type=Path, help="a library to copy; by default ten skills")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    configure_logging("error")
    with copied(options.home) as home:
        if options.what == "beyond":
            figures: dict[str, Any] = beyond(home, options.queries)
            figures = {name: round(value, 2) for name, value in figures.items()}
        else:
            figures = load(home, options.clients, options.seconds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
