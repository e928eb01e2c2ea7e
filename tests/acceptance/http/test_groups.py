"""Who sees what: every route and method, walked as readers who may not see some sources."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.servers.hidden_skills import (
    MARK,
    Walked,
    fill,
    walk_http,
    walk_mcp,
)


@pytest.fixture(scope="module")
def walked(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """`skillbus serve --listen` over a library with hidden sources, one of them made public."""
    base = tmp_path_factory.mktemp("groups")
    program = Skillbus(
        fork_server,
        base / "home",
        SKILLBUS_GATEWAY__BURST="100000",
        SKILLBUS_GATEWAY__WAIT_SECONDS="60",
        SKILLBUS_POLICY__PUBLIC=f'["crafts", "{MARK}vault"]',
    )
    fill(program, base, lambda: None)
    secrets = {
        name: program("tokens", "add", name, *options).out.strip()
        for name, options in (
            ("reader", ()),
            ("writer", ("--scope", "write", "--group", "hr")),
            ("insider", ("--group", "finance")),
            ("root", ("--scope", "admin")),
        )
    }
    port = free_port()
    headers = {"Authorization": f"Bearer {secrets['root']}"}
    with (
        program.serving("--listen", f"127.0.0.1:{port}"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as admin,
    ):
        wait_for(lambda: admin.get("/healthz").is_success)
        yield Walked(f"http://127.0.0.1:{port}", secrets, admin, program, base)


def test_no_route_leaks(walked: Walked) -> None:
    walk_http(walked)
    assert len(walked.seen) > 300
    assert not walked.leaks, "\n".join(walked.leaks)


def test_no_tool_or_method_leaks(walked: Walked) -> None:
    walk_mcp(walked)
    assert not walked.leaks, "\n".join(walked.leaks)
