"""The server time of the pages of the console, in a library of one's own.

    python -m tests.bench.console [--home HOME] [--requests N]

HOME needs no `serve`; nothing of it is written but usage. Without it the servers that the settings
name are read, and a worker for queries has to run. Pages are requested one after the other by an
admin, in the process that answers them, without a socket, and an answer is asked for first.
Prints JSON: for each page median and 95th percentile in milliseconds, the median of the processor
time of this process, which other work on the machine changes little, and its size in bytes,
compressed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx

from config.load_settings import load_settings
from config.logging import configure_logging
from config.settings import Settings
from graph.entry_filter import EntryFilter
from graph.records import SkillState
from workers.backend.distributed import DistributedBackend
from workers.backend.embedded import EmbeddedBackend
from workers.backend.store_backend import StoreBackend
from workers.http.access import AccessRules
from workers.http.app import create_gateway
from workers.http.tokens import TokenScope, TokenStore

TASK = "deploy a python service to kubernetes with a helm chart"
WORDS = ("kubernetes", "excel rep", "pdf", "postgres migrat", "react component", "de", "tes")


@contextmanager
def open_backend(settings: Settings) -> Iterator[StoreBackend]:
    """The backend of a home, or of the servers that the settings name."""
    if settings.distributed:
        with DistributedBackend(settings) as servers:
            servers.warm_up()
            yield servers
    else:
        with EmbeddedBackend(settings, writable=False, embeds="nothing") as embedded:
            embedded.warm_up()
            yield embedded


async def measure(home: Path | None, requests: int) -> dict[str, dict[str, float]]:
    """Milliseconds and bytes by page."""
    settings = load_settings(home)
    settings = settings.model_copy(
        update={"gateway": settings.gateway.model_copy(update={"burst": 1_000_000})}
    )
    with open_backend(settings) as backend, tempfile.TemporaryDirectory() as folder:
        tokens = TokenStore(Path(folder) / "tokens.json")
        headers = {"Authorization": f"Bearer {tokens.add('bench', TokenScope.ADMIN)}"}
        app = create_gateway(backend, AccessRules(tokens))
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
        base = "http://127.0.0.1"
        async with httpx.AsyncClient(
            transport=transport, base_url=base, headers=headers, timeout=120
        ) as client:
            entries = backend.graph.list_entries(EntryFilter(state=SkillState.PUBLISHED), "", 5_000)
            skills = [
                quote(one.skill_id, safe="/:") for one in entries[:: max(1, len(entries) // 200)]
            ]
            answer = await _ask(client)
            query_id = answer.rpartition("/")[2].partition("?")[0]
            graphs = [f"/console/graph?skill={one}" for one in skills]
            pages = {
                "ask": ["/console/ask"],
                "answer": [answer],
                "graph": graphs,
                "graph, 2 links away": [f"{one}&depth=2" for one in graphs],
                "graph, 200 skills": [f"{one}&depth=3&limit=200" for one in graphs],
                "graph of an answer": [f"/console/graph?query={query_id}"],
                "walk of an answer": [f"/console/graph?query={query_id}&show=walk"],
                "library": ["/console/library"],
                "library, words": [f"/console/library?q={quote(one)}" for one in WORDS],
                "library, level 3": ["/console/library?level=3"],
                "library, zh": ["/console/library?language=zh"],
                "library, scripts": ["/console/library?has_scripts=true"],
                "library, scripts not known": ["/console/library?has_scripts=unknown"],
                "library, not embedded": ["/console/library?embedded=false"],
                "skill": [f"/console/skills/{one}" for one in skills],
                "skill, links": [f"/console/skills/{one}?tab=links" for one in skills],
                "skill, use": [f"/console/skills/{one}?tab=use" for one in skills],
                "skill, revisions": [f"/console/skills/{one}?tab=revisions" for one in skills],
                "review": ["/console/review"],
                "review, rare rule": ["/console/review?rule=reverse-shell"],
                "review, common rule": ["/console/review?rule=download-run"],
                "review, second opinions": ["/console/review?rule=judgement"],
                "review of a skill": [
                    f"/console/review/{quote(one.skill_id, safe='/:')}"
                    for one in backend.graph.list_entries(EntryFilter(safety_level=2), "", 200)
                ],
                "use": ["/console/use"],
                "use, never chosen": ["/console/use?tab=unused"],
                "quality": ["/console/quality"],
                "quality, labels": ["/console/quality/labels"],
                "work": ["/console/work"],
                "work, 24 hours": ["/console/work?hours=24"],
                "sources": ["/console/sources"],
                "settings": ["/console/settings"],
            }
            return {
                name: await _time(client, itertools.cycle(paths), requests)
                for name, paths in pages.items()
            }


async def _ask(client: httpx.AsyncClient) -> str:
    """The path of an answer."""
    form = await client.get("/console/ask")
    token = re.search(r'name="csrf_token" value="(\w+)"', form.text)
    assert token is not None
    fields = {"csrf_token": token[1], "task": TASK}
    origin = {"Origin": str(client.base_url).rstrip("/")}
    sent = await client.post("/console/ask", data=fields, headers=origin)
    path = sent.headers["location"]
    while 'id="bundle"' not in (await client.get(path)).text:
        await asyncio.sleep(0.1)
    return path


async def _time(
    client: httpx.AsyncClient, paths: itertools.cycle[str], requests: int
) -> dict[str, float]:
    await client.get(next(paths))
    taken, worked, size = [], [], 0
    for _ in range(requests):
        started, processor = time.perf_counter(), time.process_time()
        response = await client.get(next(paths))
        taken.append(1_000 * (time.perf_counter() - started))
        worked.append(1_000 * (time.process_time() - processor))
        response.raise_for_status()
        size = max(size, len(gzip.compress(response.content, 4)))
    return {
        "median_ms": round(statistics.median(taken), 1),
        "p95_ms": round(statistics.quantiles(taken, n=20)[-1], 1),
        "processor_ms": round(statistics.median(worked), 1),
        "bytes": size,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--home", type=Path)
    parser.add_argument("--requests", type=int, default=100)
    options = parser.parse_args()
    configure_logging("warning")
    print(json.dumps(asyncio.run(measure(options.home, options.requests)), indent=2))


if __name__ == "__main__":
    main()
