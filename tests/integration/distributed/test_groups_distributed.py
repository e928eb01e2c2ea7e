"""Who sees what, on real servers: the gateway, workers, Elasticsearch, Neo4j and Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.hidden_skills import MARK, Walked, fill, walk_http, walk_mcp
from tests.support.servers.open_streams import (
    check_lists_follow_groups,
    check_streams_end_with_their_token,
)

__all__ = ["deployments"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def distributed(deployments: Deployments, base: Path) -> Iterator[Distributed]:
    """All workers."""
    started = deployments(
        SKILLBUS_GATEWAY__BURST="100000",
        SKILLBUS_POLICY__PUBLIC=f'["crafts", "{MARK}vault"]',
        SKILLBUS_UPLOADS__FOLDER=str(base / "uploads"),
    )
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def walked(distributed: Distributed, base: Path) -> Iterator[Walked]:
    """A gateway over a library with hidden sources."""
    program = distributed.skillbus
    fill(program, base, distributed.wait_done)
    secrets = {
        name: program("tokens", "add", name, *options).out.strip()
        for name, options in (
            ("reader", ()),
            ("writer", ("--scope", "write", "--group", "hr")),
            ("insider", ("--group", "finance")),
        )
    }
    with distributed.gateway() as (admin, _):
        yield Walked(str(admin.base_url).rstrip("/"), secrets, admin, program, base)


def test_no_route_leaks(walked: Walked) -> None:
    walk_http(walked, ["reader"])
    assert len(walked.seen) > 150
    assert not walked.leaks, "\n".join(walked.leaks)


def test_no_tool_or_method_leaks(walked: Walked) -> None:
    walk_mcp(walked)
    assert not walked.leaks, "\n".join(walked.leaks)


def test_subscriptions_follow_groups(walked: Walked) -> None:
    check_lists_follow_groups(walked)


def test_streams_end_with_their_token(walked: Walked, distributed: Distributed) -> None:
    distributed.stop("query")
    check_streams_end_with_their_token(walked, lambda: distributed.start("query"))
