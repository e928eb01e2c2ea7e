"""The OpenAPI document holds for the gateway as it runs: schemathesis finds nothing against it."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS

from tests.support.library import write_topics
from tests.support.program import ROOT, ForkServer, Skillbus

ANY_CONTENT = {
    ("POST", "/v1/events"),
    ("POST", "/v1/skills"),
    ("POST", "/v1/sources"),
    ("POST", "/v1/webhooks/{host}"),
}
"""Requests that may be refused though they are of the right form: no schema says which paths lead
out of a folder, which directories are allowed, what an archive is, or whose signature is right."""


def published() -> Any:
    """The published document; who may call is tested elsewhere."""
    document = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return document


schema = schemathesis.openapi.from_dict(published())


@pytest.fixture(scope="module")
def client(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a gateway, and what a request of an admin carries."""
    base = tmp_path_factory.mktemp("schema")
    skillbus = Skillbus(
        fork_server,
        base / "home",
        SKILLBUS_GATEWAY__REQUESTS_A_MINUTE="1000000",
        SKILLBUS_GATEWAY__BURST="100000",
    )
    skillbus("sync", str(write_topics(base / "crafts")))
    secret = skillbus("tokens", "add", "schema", "--scope", "admin").out.strip()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with skillbus.serving("--listen", address):
        yield f"http://{address}", {"Authorization": f"Bearer {secret}"}


@pytest.mark.filterwarnings("ignore:Skipped test cases with unsupported payload")
@schema.parametrize()
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_the_document_says_holds(case: Any, client: tuple[str, dict[str, str]]) -> None:
    excluded = []
    if (case.method, case.path) in ANY_CONTENT:
        excluded.append(CHECKS.get_one("positive_data_acceptance"))
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = uuid.uuid4().hex
    address, headers = client
    case.call_and_validate(base_url=address, headers=headers, excluded_checks=excluded)
