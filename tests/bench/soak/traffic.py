"""Updates and queries over HTTP at a fixed rate, by clients that do what the contract asks."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from skills.events import SourceChanged, new_event
from tests.bench.soak.library import Change, Folders
from tests.support.servers.faults import AWAY

ORIGIN = "urn:skillbus:soak"
WAIT_SECONDS = 20
"""What every second query prefers to wait; the others poll."""
POLL_SECONDS, POLL_SHARE = 0.2, 0.2
"""Pause between polls: at least these seconds, and this share of the time since the query."""
GIVE_UP_SECONDS = 180.0
"""Time limit of a request that is refused or not answered: longer than any server is down."""
_PAUSE_SECONDS = 1.0
_TIMEOUT_SECONDS = 60.0
_BUSY = (429, 503)


@dataclass
class Answer:
    """How one query ended, and when, in seconds since the start of the run.

    without_server: whether the answer names a server that it was made without.
    """

    begin: float
    end: float
    state: str
    reason: str = ""
    without_server: bool = False


@dataclass
class Tally:
    """What clients met. accepted: ids of events with the time of acceptance; lag: the greatest
    delay of an update behind its time, in seconds."""

    accepted: dict[str, float] = field(default_factory=dict)
    events: int = 0
    not_accepted: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)
    lag: float = 0.0


class Client:
    """Sends requests with a token until they are accepted, pausing as the gateway asks."""

    def __init__(self, address: str, secret: str, tally: Tally) -> None:
        self._http = httpx.AsyncClient(
            base_url=address,
            headers={"Authorization": f"Bearer {secret}"},
            timeout=_TIMEOUT_SECONDS,
        )
        self._tally = tally

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """The answer that is neither 429 nor 503; None if there is none in time."""
        end = time.monotonic() + GIVE_UP_SECONDS
        what = f"{method} {'/'.join(path.split('/')[:3])}"
        while time.monotonic() < end:
            pause = _PAUSE_SECONDS
            try:
                answer = await self._http.request(method, path, **options)
            except httpx.TransportError as error:
                self._tally.statuses[f"{what} {type(error).__name__}"] += 1
            else:
                self._tally.statuses[f"{what} {answer.status_code}"] += 1
                if answer.status_code not in _BUSY:
                    return answer
                if "retry-after" not in answer.headers:
                    self._tally.unexpected[f"{what} {answer.status_code} without Retry-After"] += 1
                pause = float(answer.headers.get("retry-after", pause))
            await asyncio.sleep(pause)
        return None


class Traffic:
    """Updates and queries for some minutes; times are since `started`."""

    def __init__(
        self, address: str, secrets: tuple[str, str], folders: Folders, tasks: Sequence[str]
    ) -> None:
        self.tally = Tally()
        self.started = time.monotonic()
        self._folders = folders
        self._tasks = itertools.cycle(tasks)
        self._numbers = itertools.count()
        self._address = address
        self._secrets = secrets

    async def run(self, seconds: float, updates: float, queries: float) -> None:
        """Send at these rates a second, and wait for what is open at the end."""
        writer, reader = (Client(self._address, one, self.tally) for one in self._secrets)
        try:
            await asyncio.gather(
                self._pace(seconds, updates, lambda due: self._update(writer, due)),
                self._pace(seconds, queries, lambda due: self._ask(reader, due)),
            )
        finally:
            await writer.close()
            await reader.close()

    async def _pace(
        self, seconds: float, rate: float, act: Callable[[float], Coroutine[Any, Any, None]]
    ) -> None:
        """Begin one act at each time that is due, whether earlier ones have ended or not."""
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * rate)):
                due = number / rate
                await asyncio.sleep(max(0.0, due - self.now()))
                group.create_task(act(due))

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    async def _update(self, client: Client, due: float) -> None:
        self.tally.lag = max(self.tally.lag, self.now() - due)
        change: Change = self._folders.change()
        content = SourceChanged(source_id=change.source_id, paths=change.paths)
        body = new_event(content, ORIGIN).model_dump(mode="json", exclude_none=True)
        # The same event is sent until it is accepted: a duplicate changes nothing.
        answer = await client.send("POST", "/v1/events", json=body)
        self.tally.events += 1
        if answer is None or answer.status_code != 202:
            said = "no answer" if answer is None else f"{answer.status_code} {answer.text[:200]}"
            self.tally.not_accepted.append(f"{change.source_id}:{change.paths[0]}: {said}")
        else:
            self.tally.accepted[answer.json()["id"]] = self.now()

    async def _ask(self, client: Client, due: float) -> None:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        if next(self._numbers) % 2:
            headers["Prefer"] = f"wait={WAIT_SECONDS}"
        body = {"task": next(self._tasks)}
        answer = await client.send("POST", "/v1/queries", json=body, headers=headers)
        end = self.now() + GIVE_UP_SECONDS
        while _is_open(answer) and self.now() < end:
            assert answer is not None
            await asyncio.sleep(max(POLL_SECONDS, POLL_SHARE * (self.now() - due)))
            answer = await client.send(
                "GET", answer.headers.get("location") or str(answer.url.path)
            )
        self.tally.answers.append(self._read(answer, due))

    def _read(self, answer: httpx.Response | None, due: float) -> Answer:
        if answer is None:
            return Answer(due, self.now(), "never accepted or answered")
        if answer.status_code != 200:
            return Answer(due, self.now(), f"status {answer.status_code}", answer.text[:200])
        found = answer.json()
        degraded = (found.get("bundle") or {}).get("degraded", ())
        without_server = any(AWAY in one for one in degraded)
        return Answer(due, self.now(), found["state"], found.get("reason", ""), without_server)


def _is_open(answer: httpx.Response | None) -> bool:
    """Whether a query is accepted and has not ended."""
    if answer is None or answer.status_code not in (200, 202):
        return False
    return answer.status_code == 202 or answer.json()["state"] == "accepted"
