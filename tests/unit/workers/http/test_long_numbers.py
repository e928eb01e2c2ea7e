"""Numbers of so many digits that Python refuses to convert them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.support.samples.tiny import tiny_backend
from workers.http.access import AccessMiddleware, AccessRules
from workers.http.app import create_api
from workers.http.cursors import encode_cursor

DIGITS = "9" * 5_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with tiny_backend(tmp_path_factory.mktemp("home")) as backend:
        api = create_api(backend, AccessRules())
        checked = AccessMiddleware(api, AccessRules(), backend.settings.gateway)
        with TestClient(api):
            yield TestClient(checked, raise_server_exceptions=False)


@pytest.mark.parametrize("seq", [DIGITS, str(2**63), "1"])
def test_no_revision_has_such_a_number(client: TestClient, seq: str) -> None:
    assert client.get(f"/v1/skills/crafts:kiln/revisions/{seq}").status_code == 404


def test_a_cursor_with_such_a_number_begins_at_the_start(client: TestClient) -> None:
    filters = "q=kiln&state=published"
    found = client.get(f"/v1/library?{filters}&cursor={encode_cursor(DIGITS, filters)}")
    assert (found.status_code, found.json()["skills"]) == (200, [])
