"""Streams that stay open while rights change: what they still send, and when they end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from tests.support.program.program import wait_for
from tests.support.servers.hidden_skills import Walked
from tests.support.servers.mcp import ask, over_http

SEAL = "skill://annex/seal/SKILL.md"
"""Of a source whose groups the reader does not share at first."""

LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"resourcesListChanged": True},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
LISTEN_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "subscriptions/listen",
}


def check_lists_follow_groups(walked: Walked) -> None:
    """A reader is notified when a source is shown to it, and when it is hidden again."""

    def set_groups(*groups: str) -> None:
        body = {"groups": list(groups)}
        walked.admin.put("/v1/sources/annex/groups", json=body).raise_for_status()

    async def work() -> None:
        async with (
            over_http(f"{walked.url}/mcp", walked.secrets["reader"]) as client,
            client.listen(resources_list_changed=True, resource_subscriptions=[SEAL]) as stream,
        ):
            for groups in (("everyone",), ("audit", "finance")):
                await anyio.to_thread.run_sync(partial(set_groups, *groups))
                seen: set[str] = set()
                with anyio.fail_after(60):
                    async for event in stream:
                        if isinstance(event, ResourcesListChanged):
                            seen.add("list")
                        if isinstance(event, ResourceUpdated):
                            seen.add(event.uri)
                        if seen == {"list", SEAL}:
                            break
                listed = [one["uri"] for one in (await ask(client, "skills/list"))["skills"]]
                assert (SEAL in listed) is ("everyone" in groups)
            with pytest.raises(MCPError):
                await ask(client, "skills/get", uri=SEAL)

    try:
        anyio.run(work)
    finally:
        set_groups("audit", "finance")


class OpenStream:
    """A response that is read by a thread until it ends."""

    def __init__(self, client: httpx.Client, method: str, path: str, **options: Any) -> None:
        self._request = partial(client.stream, method, path, **options)
        self.status = 0
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._request() as response:
            self.status = response.status_code
            for line in response.iter_lines():
                self.lines.append(line)

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended the response, in order."""
        return not self._thread.is_alive()


@contextmanager
def opened_streams(walked: Walked, name: str, query_id: str) -> Iterator[list[OpenStream]]:
    """A subscription, and the events of a query, of a caller."""
    with walked.client(name) as client:
        listening = OpenStream(client, "POST", "/mcp", json=LISTEN, headers=LISTEN_HEADERS)
        events = OpenStream(client, "GET", f"/v1/queries/{query_id}/events")
        wait_for(lambda: any("acknowledged" in line for line in listening.lines))
        wait_for(lambda: events.status == 200)
        yield [listening, events]


def check_streams_end_with_their_token(walked: Walked, release: Callable[[], None]) -> None:
    """Streams of a revoked token end; a query that is then answered is sent on none of them.

    No query may be answered before `release` is called.
    """
    created = walked.admin.post("/v1/tokens", json={"name": "leaving", "scope": "read"})
    walked.secrets = {**walked.secrets, "leaving": created.json()["token"]}
    with walked.client("leaving") as client:
        task = {"task": "fire stoneware in an electric kiln"}
        query_id = client.post("/v1/queries", json=task).json()["id"]
        waiting = OpenStream(
            client, "POST", "/v1/queries", json=task, headers={"Prefer": "wait=60"}
        )
        with opened_streams(walked, "leaving", query_id) as streams:
            walked.admin.delete("/v1/tokens/leaving").raise_for_status()
            wait_for(lambda: all(one.has_ended for one in streams))
        release()
        wait_for(lambda: waiting.has_ended)
    job = walked.admin.get(f"/v1/queries/{query_id}")
    assert job.json()["state"] in ("accepted", "done", "cancelled"), job.text
    assert waiting.status == 401
    for one in (*streams, waiting):
        assert "kiln" not in json.dumps(one.lines), one.lines
