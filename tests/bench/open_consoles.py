"""What open consoles cost: processor time of the server, with pages of Work left open and without.

    python -m tests.bench.open_consoles [--home HOME] [--consoles N] [--queries N] [--rounds N]

Works on a copy of the home (which needs no `serve`, and has section vectors, or they would be made
meanwhile), by default a made-up one of ten skills. The page has the events of a busy hour. Each
console is a page of Work of an admin that asks for its changing part every three seconds, as htmx
does. Prints JSON: the share of one processor that the consoles take while nothing else is asked,
and for queries that are asked one after the other the processor time and the median of the waiting
time in milliseconds, without consoles and with them, in rounds that take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import re
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from config.logging import configure_logging
from config.settings import Settings
from deploy.stack.ports import free_port
from tests.bench.http import copied, served, tasks_of
from workers.http.tokens import TokenScope, open_token_store
from workers.processes.http_server import format_address

PATH = "/console/work"
PERIOD_SECONDS = 3.0
IDLE_SECONDS = 15.0
EVENTS = 150
_CSRF = re.compile(r'name="csrf_token" value="(\w+)"')


async def _keep_open(url: str, secret: str, over: threading.Event, opened: list[int]) -> None:
    """Log in, open the page, and ask for its part until it is over."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        await asyncio.sleep(random.uniform(0, PERIOD_SECONDS))
        found = _CSRF.search((await client.get("/console/login")).text)
        assert found is not None
        fields = {"csrf_token": found[1], "token": secret}
        logged_in = await client.post("/console/login", data=fields, headers={"Origin": url})
        assert logged_in.status_code == 303, logged_in.text
        (await client.get(PATH)).raise_for_status()
        opened.append(1)
        while not over.is_set():
            await asyncio.sleep(PERIOD_SECONDS)
            (await client.get(PATH, headers={"HX-Request": "true"})).raise_for_status()


@contextlib.contextmanager
def open_consoles(url: str, secrets: list[str]) -> Iterator[None]:
    """A console for each token, all of them opened."""
    over, opened = threading.Event(), list[int]()

    async def keep_all_open() -> None:
        async with asyncio.TaskGroup() as group:
            for secret in secrets:
                group.create_task(_keep_open(url, secret, over, opened))

    thread = threading.Thread(target=lambda: asyncio.run(keep_all_open()))
    thread.start()
    try:
        while len(opened) < len(secrets):
            assert thread.is_alive(), "a console could not be opened"
            time.sleep(0.05)
        yield
        assert thread.is_alive() or not secrets, "a console failed"
    finally:
        over.set()
        thread.join()


def processor_seconds(server: psutil.Process) -> float:
    """Of the server and its children so far."""
    times = [one.cpu_times() for one in (server, *server.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def ask(
    server: psutil.Process, client: httpx.Client, tasks: list[str]
) -> tuple[float, list[float]]:
    """Processor seconds of all queries, and the milliseconds that each waited."""
    before, waited = processor_seconds(server), []
    for task in tasks:
        started = time.perf_counter()
        client.post("/v1/queries", json={"task": task}).raise_for_status()
        waited.append(1_000 * (time.perf_counter() - started))
    return processor_seconds(server) - before, waited


def fill_hour(client: httpx.Client) -> None:
    """Have many events of the last hour, all of them done."""
    source = client.get("/v1/sources").json()["sources"][0]["source_id"]
    for _ in range(EVENTS):
        client.post(f"/v1/sources/{source}").raise_for_status()
    while client.get("/v1/status").json()["open_events"]:
        time.sleep(0.5)


def measure(home: Path, consoles: int, queries: int, rounds: int) -> dict[str, object]:
    """Figures of consoles and queries."""
    tokens = open_token_store(Settings(home=home))
    secrets = [tokens.add(f"console-{number}", TokenScope.ADMIN) for number in range(consoles)]
    address = ("127.0.0.1", free_port(set()))
    url = f"http://{format_address(address)}"
    asker = tokens.add("asker", TokenScope.ADMIN)
    headers = {"Authorization": f"Bearer {asker}", "Prefer": "wait=30"}
    tasks = itertools.cycle(tasks_of(home))
    taken: dict[int, list[float]] = {0: [], consoles: []}
    waited: dict[int, list[float]] = {0: [], consoles: []}
    idle: dict[int, float] = {}
    with (
        served(home, address, SKILLBUS_GATEWAY__REQUESTS_A_MINUTE="100000") as server,
        httpx.Client(base_url=url, headers=headers, timeout=60) as client,
    ):
        fill_hour(client)
        for number in range(rounds):
            batch = [f"{next(tasks)} {number}" for _ in range(queries)]
            for count in (0, consoles):
                with open_consoles(url, secrets[:count]):
                    if count not in idle:
                        before = processor_seconds(server)
                        time.sleep(IDLE_SECONDS)
                        idle[count] = (processor_seconds(server) - before) / IDLE_SECONDS
                    seconds, each = ask(server, client, [f"{one} {count}" for one in batch])
                taken[count].append(1_000 * seconds / queries)
                waited[count] += each
    return {
        str(count): {
            "idle_processor_percent": round(100 * idle[count], 2),
            "query_processor_ms": round(statistics.median(taken[count]), 1),
            "query_waited_ms_p50": round(statistics.median(waited[count]), 1),
        }
        for count in (0, consoles)
    }


def main() -> None:
    """Measure, and print it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--home", type=Path, help="a library to copy; by default ten skills")
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    configure_logging("error")
    with copied(options.home) as home:
        figures = measure(home, options.consoles, options.queries, options.rounds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
