"""What MCP costs: `find_skills` and `read_skill` over standard streams, over the time inside.

    python -m tests.bench.mcp [QUERIES]

An agent's client speaks with `skillbus mcp`, a process of its own, on a made-up library of ten
skills. The time inside is what the stages of a query tell of themselves. Prints medians in
milliseconds: of the whole call, of what it takes beyond the stages, and of reading a skill.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio
from mcp import Client

from config.logging import configure_logging
from config.settings import Settings
from skills.events import SourceChanged
from tests.support.samples.library import TOPICS, write_topics
from tests.support.servers.mcp import over_stdio
from workers.backend.embedded import EmbeddedBackend

ORIGIN = "skillbus/bench"


def measure(queries: int) -> dict[str, float]:
    """The medians."""
    configure_logging("error")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        with EmbeddedBackend(Settings(home=home), writable=True) as backend:
            root = write_topics(Path(folder, "crafts"))
            backend.submit(SourceChanged(source_id="crafts", root=str(root)), ORIGIN)
            while backend.get_progress().get("published", 0) < len(TOPICS):
                time.sleep(0.1)
        return anyio.run(_ask, home, queries)


async def _ask(home: Path, queries: int) -> dict[str, float]:
    tasks = [f"{text}, number {n}" for n in range(queries) for text in TOPICS.values()][:queries]
    whole, beyond, reading = [], [], []
    async with over_stdio(home) as client:
        for place, task in enumerate(tasks[:5] + tasks):
            taken, inside = await _find(client, task)
            started = time.perf_counter()
            await client.call_tool("read_skill", {"skill_id": "crafts:kiln-firing"})
            if place >= 5:
                reading.append((time.perf_counter() - started) * 1000)
                whole.append(taken)
                beyond.append(taken - inside)
    return {
        "find_skills_p50": statistics.median(whole),
        "beyond_stages_p50": statistics.median(beyond),
        "read_skill_p50": statistics.median(reading),
    }


async def _find(client: Client, task: str) -> tuple[float, float]:
    """How long a call took, and how long its stages say that they did."""
    messages: list[str] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    started = time.perf_counter()
    result = await client.call_tool("find_skills", {"task": task}, progress_callback=tell)
    taken = (time.perf_counter() - started) * 1000
    assert not result.is_error, result.content
    stages = messages[-1].removeprefix("done: ").split(", ")
    return taken, sum(float(stage.split()[1]) for stage in stages)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(json.dumps({name: round(value, 2) for name, value in measure(count).items()}, indent=2))
