"""Pins over HTTP, and who may set them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics

KILN = "crafts:kiln-firing"


@pytest.fixture(scope="module")
def skillbus(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    base = tmp_path_factory.mktemp("pins")
    made = Skillbus(fork_server, base / "home")
    made("sync", str(write_topics(base / "crafts")), "--until", "words")
    return made


@pytest.fixture(scope="module")
def client(skillbus: Skillbus) -> Iterator[httpx.Client]:
    with skillbus.serving(), skillbus.client() as opened:
        yield opened


def test_a_pin_is_set_listed_and_taken_back(client: httpx.Client, skillbus: Skillbus) -> None:
    answer = client.post("/v1/pins", json={"skill_id": KILN, "reason": "not reviewed"})
    assert answer.status_code == 201
    pin = answer.json()
    assert client.get("/v1/pins").json() == {"pins": [pin]}
    root = skillbus.home.parent / "crafts"
    write_skill(root, "kiln-firing", body="# Kiln\n\nOther text.\n")
    skillbus("sync", str(root), "--until", "words")
    [row] = client.get("/v1/pins/drift").json()["pins"]
    assert row["skill_id"] == KILN
    assert "+Other text." in row["change"]["diff"]
    states = [
        one["state"] for one in client.get(f"/v1/skills/{KILN}/revisions").json()["revisions"]
    ]
    assert states == ["held", "published"]
    assert client.delete(f"/v1/pins/{KILN}").status_code == 204
    wait_for(
        lambda: (
            client.get(f"/v1/skills/{KILN}/revisions").json()["revisions"][0]["state"]
            == "published"
        )
    )
    assert client.get("/v1/pins").json() == {"pins": []}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"skill_id": "crafts:none", "reason": "x"}, 404),
        ({"skill_id": KILN, "seq": 999999, "reason": "x"}, 404),
        ({"skill_id": KILN, "reason": " "}, 400),
    ],
)
def test_what_cannot_be_pinned_is_refused(
    client: httpx.Client, body: dict[str, object], status: int
) -> None:
    assert client.post("/v1/pins", json=body).status_code == status
    assert client.get("/v1/pins").json() == {"pins": []}


def test_there_is_no_pin_to_take_back_or_compare(client: httpx.Client) -> None:
    assert client.delete(f"/v1/pins/{KILN}").status_code == 404
    assert client.get("/v1/pins/drift", params={"skill_id": KILN}).status_code == 404
