"""Who sees what, on real servers: the gateway, workers, Elasticsearch, Neo4j and Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.distributed import Deployments, deployments
from tests.support.servers.hidden_skills import MARK, Walked, fill, walk_http, walk_mcp

__all__ = ["deployments"]


@pytest.fixture(scope="module")
def walked(deployments: Deployments, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """A gateway and all workers over a library with hidden sources."""
    base = tmp_path_factory.mktemp("groups")
    distributed = deployments(
        SKILLBUS_GATEWAY__BURST="100000",
        SKILLBUS_POLICY__PUBLIC=f'["crafts", "{MARK}vault"]',
        SKILLBUS_UPLOADS__FOLDER=str(base / "uploads"),
    )
    distributed.start()
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
    distributed.stop()


def test_no_route_leaks(walked: Walked) -> None:
    walk_http(walked)
    assert len(walked.seen) > 300
    assert not walked.leaks, "\n".join(walked.leaks)


def test_no_tool_or_method_leaks(walked: Walked) -> None:
    walk_mcp(walked)
    assert not walked.leaks, "\n".join(walked.leaks)
