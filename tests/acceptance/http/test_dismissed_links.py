"""Dismissed links over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics

PATH = "/v1/links/dismissed"
KILN, NEEDED = "crafts:kiln-firing", "crafts:bread-baking"


@pytest.fixture(scope="module")
def client(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    base = tmp_path_factory.mktemp("dismissed")
    skillbus = Skillbus(fork_server, base / "home")
    root = write_topics(base / "crafts")
    write_skill(root, "kiln-firing", depends="[bread-baking]")
    skillbus("sync", str(root))
    with skillbus.serving(), skillbus.client() as opened:
        yield opened


def dependencies(client: httpx.Client) -> list[str]:
    links = client.get(f"/v1/skills/{KILN}").json()["links"]
    return [link["target"] for link in links if link["type"] == "dependency"]


PLACE = {"source": KILN, "target": NEEDED, "type": "dependency"}


def test_a_link_is_dismissed_listed_and_restored(client: httpx.Client) -> None:
    assert dependencies(client) == [NEEDED]
    answer = client.post(PATH, json=PLACE | {"reason": "not so"})
    assert answer.status_code == 201
    data = answer.json()
    assert data == PLACE | {"reason": "not so", "dismissed_at": data["dismissed_at"]}
    assert dependencies(client) == []
    assert client.get(f"/v1/skills/{NEEDED}").json()["dismissed_links"] == [data]
    assert client.get(PATH).json() == {"links": [data]}
    again = client.post(PATH, json=PLACE | {"reason": "still not so"})
    assert again.status_code == 201
    assert [one["reason"] for one in client.get(PATH).json()["links"]] == ["still not so"]
    assert client.delete(PATH, params=PLACE).status_code == 204
    wait_for(lambda: dependencies(client) == [NEEDED])
    assert client.get(PATH).json() == {"links": []}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"target": "crafts:none"}, 404),
        ({"type": "conflict"}, 404),
        ({"source": NEEDED, "target": KILN}, 404),
        ({"reason": "a\nb"}, 400),
        ({"reason": "  "}, 400),
    ],
)
def test_what_cannot_be_dismissed(
    client: httpx.Client, change: dict[str, str], status: int
) -> None:
    answer = client.post(PATH, json=PLACE | {"reason": "not so"} | change)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert dependencies(client) == [NEEDED]


def test_what_is_not_dismissed_cannot_be_restored(client: httpx.Client) -> None:
    assert client.delete(PATH, params=PLACE).status_code == 404
