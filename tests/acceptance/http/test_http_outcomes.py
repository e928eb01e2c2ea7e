"""Outcomes over HTTP, as clients with tokens report them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.token_clients import Clients, serving_clients
from tests.support.samples.library import write_topics

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"
HELPED = {"skill_id": KILN, "outcome": "helped", "reason": "", "by": "verifier"}


@pytest.fixture(scope="module")
def skillbus(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    base = tmp_path_factory.mktemp("http-outcomes")
    made = Skillbus(fork_server, base / "home", SKILLBUS_GATEWAY__BURST="100000")
    made("sync", str(write_topics(base / "crafts")))
    return made


@pytest.fixture(scope="module")
def clients(skillbus: Skillbus) -> Iterator[Clients]:
    scopes = {"ann": "read", "bob": "read", "root": "admin"}
    with serving_clients(skillbus, scopes) as opened:
        yield opened


def ask(client: httpx.Client) -> str:
    headers = {"Prefer": "wait=60"}
    return str(client.post("/v1/queries", json={"task": TASK}, headers=headers).json()["id"])


@pytest.fixture(scope="module")
def asked(clients: Clients) -> str:
    """A query of which nothing is reported."""
    return ask(clients["ann"])


def ended(client: httpx.Client, location: str) -> dict[str, object]:
    found: dict[str, object] = wait_for(
        lambda: (state := client.get(location).json())["state"] != "accepted" and state
    )
    return found


def stored(client: httpx.Client, query_id: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.get(f"/v1/queries/{query_id}/outcomes").json()[
        "outcomes"
    ]
    return found


def test_outcomes_are_accepted_stored_and_listed(clients: Clients) -> None:
    query_id = ask(clients["ann"])
    assert stored(clients["ann"], query_id) == []
    body = {"outcomes": [HELPED, {"outcome": "missing"}], "task_result": "succeeded"}
    answer = clients["ann"].post(f"/v1/queries/{query_id}/outcomes", json=body)
    assert answer.status_code == 202
    state = ended(clients["ann"], answer.headers["location"])
    assert (state["state"], state["outcome"]) == ("done", {"query_id": query_id, "outcomes": 2})
    rows = stored(clients["ann"], query_id)
    assert [(row["outcome"], row["by"], row["owner"]) for row in rows] == [
        ("helped", "verifier", "ann"),
        ("missing", "agent", "ann"),
    ]
    assert {row["task_result"] for row in rows} == {"succeeded"}


def test_a_report_with_a_key_counts_once(clients: Clients) -> None:
    query_id = ask(clients["ann"])
    url, headers = f"/v1/queries/{query_id}/outcomes", {"Idempotency-Key": f"tests-{query_id}"}
    ids = {
        clients["ann"].post(url, json={"outcomes": [HELPED]}, headers=headers).json()["id"]
        for _ in range(3)
    }
    assert len(ids) == 1
    ended(clients["ann"], f"/v1/events/{ids.pop()}")
    assert len(stored(clients["ann"], query_id)) == 1
    other = {"outcomes": [{**HELPED, "outcome": "failed"}]}
    assert clients["ann"].post(url, json=other, headers=headers).status_code == 422


def test_queries_of_others_are_not_disclosed(clients: Clients) -> None:
    query_id = ask(clients["ann"])
    url = f"/v1/queries/{query_id}/outcomes"
    unknown = clients["bob"].post("/v1/queries/unknown/outcomes", json={"outcomes": [HELPED]})
    for name in ("bob", "root"):
        answer = clients[name].post(url, json={"outcomes": [HELPED]})
        assert answer.status_code == unknown.status_code == 404
        assert answer.json()["detail"].replace(query_id, "unknown") == unknown.json()["detail"]
    assert clients["bob"].get(url).status_code == 404
    assert clients["root"].get(url).json() == {"outcomes": []}
    forged = {
        "specversion": "1.0", "id": "forged", "source": "bob", "owner": "ann",
        "type": "skillbus.outcome.reported.v1",
        "data": {"query_id": query_id, "outcomes": [HELPED]},
    }  # fmt: skip
    assert clients["bob"].post("/v1/events", json=forged).status_code == 403
    sent = clients["root"].post("/v1/events", json=forged)
    assert ended(clients["root"], sent.headers["location"])["state"] == "failed"
    assert stored(clients["ann"], query_id) == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "outcomes"),
        ({"outcomes": []}, "outcomes"),
        ({"outcomes": [HELPED] * 201}, "200"),
        ({"outcomes": [{**HELPED, "outcome": "liked"}]}, "helped"),
        ({"outcomes": [{**HELPED, "by": "me"}]}, "verifier"),
        ({"outcomes": [{**HELPED, "skill_id": "../x"}]}, "skill_id"),
        ({"outcomes": [{**HELPED, "weight": 3}]}, "weight"),
        ({"outcomes": [{"skill_id": KILN, "outcome": "rejected"}]}, "reason"),
        ({"outcomes": [HELPED], "task_result": "maybe"}, "task_result"),
        ({"outcomes": [HELPED], "owner": "bob"}, "owner"),
    ],
)
def test_bad_reports_are_refused(
    clients: Clients, asked: str, body: dict[str, object], text: str
) -> None:
    answer = clients["ann"].post(f"/v1/queries/{asked}/outcomes", json=body)
    assert answer.status_code == 422
    assert text in answer.json()["detail"]
    assert stored(clients["ann"], asked) == []


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("{bad", "application/json", "the body is not valid JSON: Expecting property name"),
        ("{}", "text/plain", "the body is not a JSON object, sent as application/json"),
    ],
)
def test_a_body_of_another_form_is_named(
    clients: Clients, body: str, content_type: str, text: str
) -> None:
    answer = clients["ann"].post(
        "/v1/queries", content=body, headers={"Content-Type": content_type}
    )
    assert (answer.status_code, answer.json()["detail"][: len(text)]) == (422, text)


def test_an_unknown_skill_fails_the_report(clients: Clients, asked: str) -> None:
    body = {"outcomes": [HELPED, {"skill_id": "crafts:none", "outcome": "helped"}]}
    answer = clients["ann"].post(f"/v1/queries/{asked}/outcomes", json=body)
    state = ended(clients["ann"], answer.headers["location"])
    assert (state["state"], stored(clients["ann"], asked)) == ("failed", [])
    assert "no skill 'crafts:none'" in str(state["reason"])


def count(skillbus: Skillbus) -> dict[str, int]:
    rows = skillbus("outcomes", "owners", "--json").data
    return {row["owner"]: row["outcomes"] for row in rows}


def test_an_owner_is_forgotten(clients: Clients, skillbus: Skillbus) -> None:
    query_id = ask(clients["bob"])
    answer = clients["bob"].post(f"/v1/queries/{query_id}/outcomes", json={"outcomes": [HELPED]})
    ended(clients["bob"], answer.headers["location"])
    counts = count(skillbus)
    assert counts["bob"] == 1
    assert skillbus("outcomes", "forget", "--owner", "bob", "--json").data == {"forgotten": 1}
    assert clients["bob"].get(f"/v1/queries/{query_id}/outcomes").status_code == 404
    assert count(skillbus) == {owner: n for owner, n in counts.items() if owner != "bob"}
