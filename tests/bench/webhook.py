"""How fast a push is processed and found: git remote -> webhook -> 202 -> searchable, embedded.

    python -m tests.bench.webhook [--pushes N] [--skills N] [--deliveries N] [--library HOME]

Starts `skillbus serve` on a home of its own, a copy of HOME where one is given (a library that is
paged: what is left of that goes on meanwhile), and a git server on loopback, adds the repository as
a source, then for each push edits one skill, pushes, sends the signed delivery, and asks until the
edit is found. `--deliveries` more are sent for the time of the answer alone, one after another and
four at a time. Prints JSON; figures depend on the machine and on what else runs on it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.stack.ports import free_port
from skills.events import GitFetchOptions, SourceChanged, new_event
from tests.bench.run import percentiles, serving
from tests.support.samples.library import TOPICS, write_skill
from tests.support.servers.git_remote import PushedRepository, served_over_http
from tests.support.servers.webhooks import github, github_push
from workers.webhooks.delivery import Delivery

SOURCE = "pushed"
PATIENCE_SECONDS = 180.0
_SETTINGS = """\
[git]
protocols = ["https", "http"]
allow_private = true
poll_seconds = 3600

[gateway]
requests_a_minute = 100000
burst = 100000

[webhooks]
github = ["{secret}"]
"""


@dataclass(frozen=True)
class Place:
    """A served home, and what is pushed to it."""

    home: Path
    port: int
    secret: str
    address: str
    repository: PushedRepository
    client: httpx.Client

    def deliver(self, commit: str) -> float:
        """Send the delivery of a push; milliseconds until 202."""
        content = github_push(self.address, after=commit)
        delivery = github(content, self.secret)
        return _sent(self.port, delivery)


def _sent(port: int, delivery: Delivery) -> float:
    with httpx.Client(timeout=30) as client:
        begun = time.perf_counter()
        answer = client.post(
            f"http://127.0.0.1:{port}/v1/webhooks/{delivery.host}",
            content=delivery.body,
            headers=dict(delivery.headers),
        )
        milliseconds = 1000 * (time.perf_counter() - begun)
    if answer.status_code != 202:
        sys.exit(f"{answer.status_code}: {answer.text}")
    return milliseconds


@contextmanager
def served_place(folder: Path, skills: int, library: Path | None) -> Iterator[Place]:
    """A home that serves a pushed repository of skills, in addition to those of a library."""
    repository = PushedRepository(folder / "remote")
    names = list(TOPICS)
    for number in range(skills):
        topic = names[number % len(names)]
        write_skill(repository.tree, f"{topic}-{number}", TOPICS[topic])
    repository.push()
    home, secret = folder / "home", secrets.token_hex(16)
    if library is None:
        home.mkdir()
    else:
        shutil.copytree(library, home, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    (folder / "secret").write_text(secret)
    (home / "skillbus.toml").write_text(_SETTINGS.format(secret=folder / "secret"))
    port = free_port()
    listen = ("--listen", f"127.0.0.1:{port}")
    with (
        served_over_http(folder / "remote") as base,
        serving(home, *listen, SKILLBUS_LOG_LEVEL="error"),
    ):
        address = f"{base}/skills.git"
        transport = httpx.HTTPTransport(uds=str(home / "serve.sock"))
        with httpx.Client(transport=transport, base_url="http://skillbus", timeout=60) as client:
            place = Place(home, port, secret, address, repository, client)
            add = SourceChanged(source_id=SOURCE, root=address, git=GitFetchOptions(branch="main"))
            before = _published(place)
            event = new_event(add, "skillbus/bench").model_dump(mode="json")
            client.post("/v1/events", json=event).raise_for_status()
            _until(lambda: _published(place) >= before + skills)
            yield place


def _until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"nothing after {PATIENCE_SECONDS:g} s")
        time.sleep(0.02)


def _published(place: Place) -> int:
    status = place.client.get("/v1/status").json()
    return int(status["skills"]["published"])


def push_until_found(place: Place, number: int, skills: int) -> tuple[float, float]:
    """Edit a skill, push and deliver; milliseconds until 202 and until a query finds the edit."""
    names = list(TOPICS)
    chosen = number % skills
    topic = names[chosen % len(names)]
    word = f"quillon{number}x{secrets.token_hex(3)}"
    path = f"{topic}-{chosen}"
    write_skill(place.repository.tree, path, f"{TOPICS[topic]}, with the {word} in place")
    commit = place.repository.push(word)
    begun = time.perf_counter()
    answered = place.deliver(commit)
    task = {"task": f"{TOPICS[topic]}, with the {word} in place", "top": 3, "budget": 4000}
    _until(lambda: _is_found(place, task, f"{SOURCE}:{path}", word))
    return answered, 1000 * (time.perf_counter() - begun)


def _is_found(place: Place, task: dict[str, Any], skill_id: str, word: str) -> bool:
    bundle = place.client.post("/v1/answers", json=task).json()
    found = (one for one in bundle["skills"] if one["skill_id"] == skill_id)
    return any(word in one["description"] for one in found)


def bench(pushes: int, skills: int, deliveries: int, library: Path | None) -> dict[str, Any]:
    """All figures."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served_place(Path(folder), skills, library) as place,
    ):
        push_until_found(place, 0, skills)  # the first loads what the others find loaded
        times = [push_until_found(place, number, skills) for number in range(1, pushes + 1)]
        made_up = [f"{number:040x}" for number in range(1, 2 * deliveries + 1)]
        alone = [place.deliver(commit) for commit in made_up[:deliveries]]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(place.deliver, made_up[deliveries:]))
        published = _published(place)
    return {
        "skills": published,
        "pushes": pushes,
        "push_to_202_ms": percentiles([one for one, _ in times]),
        "push_to_found_ms": percentiles([one for _, one in times]),
        "deliveries": deliveries,
        "alone_ms": percentiles(alone),
        "four_at_a_time_ms": percentiles(together),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pushes", type=int, default=40)
    parser.add_argument("--skills", type=int, default=40)
    parser.add_argument("--deliveries", type=int, default=200)
    parser.add_argument("--library", type=Path, help="home of a library to copy")
    chosen = parser.parse_args()
    figures = bench(chosen.pushes, chosen.skills, chosen.deliveries, chosen.library)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
