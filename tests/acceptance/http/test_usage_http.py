"""Usage and telemetry over HTTP, with tokens of several owners."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.token_clients import Clients, serving_clients
from tests.support.samples.library import write_topics
from workers.http.routes.usage import AnsweredQueriesQuery

KILN = "fire stoneware in an electric kiln"
ANSWERED = "/v1/usage/queries"
WRONG_PLACE = AnsweredQueriesQuery().make_next_path(ANSWERED, "nan q").rpartition("cursor=")[2]
SNAPSHOTS, JACOBIAN = "rotate the zfs snapshots", "invert the sparse jacobian on the gpu"


@pytest.fixture(scope="module")
def clients(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Two readers who have asked, and an admin."""
    base: Path = tmp_path_factory.mktemp("usage-http")
    skillbus = Skillbus(fork_server, base / "home", SKILLBUS_GATEWAY__BURST="100000")
    skillbus("sync", str(write_topics(base / "crafts")))
    scopes = {"ann": "read", "bob": "read", "root": "admin"}
    with serving_clients(skillbus, scopes) as opened:
        for name, task in (("ann", KILN), ("ann", SNAPSHOTS), ("bob", JACOBIAN)):
            ask(opened[name], task)
        yield opened


def ask(client: httpx.Client, task: str, **more: Any) -> str:
    answer = client.post("/v1/queries", json={"task": task, **more}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def get(client: httpx.Client, path: str, **params: Any) -> Any:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_counts_are_those_of_all(clients: Clients) -> None:
    for client in clients.values():
        total = get(client, "/v1/usage")["total"]
        assert total["queries"] >= 3
        assert total["no_hits"] == 2
    [row] = get(clients["bob"], "/v1/usage", skill="crafts:kiln-firing")["skills"]
    assert row["sent"] >= 1


def test_a_look_at_an_answer_is_not_counted(clients: Clients) -> None:
    def count() -> tuple[int, int]:
        report = get(clients["bob"], "/v1/usage")
        return report["total"]["queries"], report["total"]["chosen"]

    before = count()
    looked = ask(clients["bob"], KILN, record_use=False)
    # It can be reported of, so it is stored; what is asked next is stored behind it.
    outcomes = {"outcomes": [{"skill_id": "crafts:kiln-firing", "outcome": "helped"}]}
    assert clients["bob"].post(f"/v1/queries/{looked}/outcomes", json=outcomes).status_code == 202
    wait_for(lambda: get(clients["bob"], f"/v1/queries/{looked}/outcomes")["outcomes"])
    assert count() == before


def test_texts_and_names_are_the_callers_own(clients: Clients) -> None:
    def tasks(name: str) -> set[str]:
        groups = get(clients[name], "/v1/usage/unanswered")["groups"]
        return {one["task"] for group in groups for one in group["examples"]}

    def owners(name: str) -> set[str]:
        return {one["owner"] for one in get(clients[name], "/v1/usage")["owners"]}

    assert (tasks("ann"), owners("ann")) == ({SNAPSHOTS}, {"ann"})
    assert (tasks("bob"), owners("bob")) == ({JACOBIAN}, {"bob"})
    assert tasks("root") == {SNAPSHOTS, JACOBIAN}
    assert owners("root") == {"ann", "bob"}
    assert get(clients["bob"], "/v1/usage/unanswered")["total"] == 1


def test_the_usage_of_another_owner_is_for_admins(clients: Clients) -> None:
    for path in ("/v1/usage", "/v1/usage/unused", "/v1/usage/copies"):
        assert clients["ann"].get(path, params={"owner": "ann"}).status_code == 200
        for owner in ("bob", ""):
            refused = clients["ann"].get(path, params={"owner": owner})
            assert refused.status_code == 403
            assert refused.headers["content-type"] == "application/problem+json"
    assert get(clients["root"], "/v1/usage", owner="bob")["total"]["queries"] == 1
    assert get(clients["root"], "/v1/usage", owner="")["total"]["queries"] == 0


def list_answered(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    """The answered queries of all pages."""
    found, following = [], get(client, "/v1/usage/queries", **params)
    while following:
        found += [one for group in following["groups"] for one in group["answers"]]
        following = following["next"] and client.get(following["next"]).json()
    return found


def test_answered_queries_are_listed_newest_first(clients: Clients) -> None:
    rows = list_answered(clients["root"])
    assert [one["answered_at"] for one in rows] == sorted(
        (one["answered_at"] for one in rows), reverse=True
    )
    asked = [(one["owner"], one["task"]) for one in rows]
    assert asked == [("bob", JACOBIAN), ("ann", SNAPSHOTS), ("ann", KILN)]
    assert list_answered(clients["root"], limit=1) == rows
    assert list_answered(clients["ann"]) == rows[1:]
    kiln = rows[2]
    assert kiln["skills"][0] == {"skill_id": "crafts:kiln-firing", "sent": True}
    assert (kiln["hit"], kiln["outcomes"]) == (True, [])
    assert 0 < kiln["probability"] <= 1
    assert kiln["kept"]
    assert get(clients["ann"], f"/v1/queries/{kiln['query_id']}")["bundle"]["task"] == KILN
    for outcome, tasks in (
        ("hit", [KILN]),
        ("no_hit", [JACOBIAN, SNAPSHOTS]),
        ("unreported", [JACOBIAN, SNAPSHOTS, KILN]),
        ("helped", []),
    ):
        found = list_answered(clients["root"], outcome=outcome)
        assert [one["task"] for one in found] == tasks, outcome


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/v1/usage", {"cursor": "x"}, 400),
        ("/v1/usage/unanswered", {"skill": "crafts:kiln-firing"}, 422),
        ("/v1/usage/unanswered", {"cursor": "AAAA"}, 400),
        (ANSWERED, {"cursor": "AAAA"}, 400),
        (ANSWERED, {"cursor": WRONG_PLACE}, 400),
    ],
)
def test_bad_parameters_are_refused(
    clients: Clients, path: str, params: dict[str, str], status: int
) -> None:
    assert clients["ann"].get(path, params=params).status_code == status


def test_a_cursor_is_of_its_own_list(clients: Clients) -> None:
    client = clients["root"]
    following = get(client, "/v1/usage/unused", limit=2)["next"]
    cursor = httpx.URL(following).params["cursor"]
    assert len(get(client, "/v1/usage/unused", limit=2, cursor=cursor)["skills"]) == 2
    other = client.get("/v1/usage/unused", params={"days": 3, "cursor": cursor})
    assert other.status_code == 400


# -- telemetry


def logs(*records: dict[str, str]) -> bytes:
    """OTLP log records with these attributes."""
    made = [
        {
            "attributes": [
                {"key": key, "value": {"stringValue": value}} for key, value in one.items()
            ]
        }
        for one in records
    ]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": made}]}]}).encode()


def export(client: httpx.Client, body: bytes, **headers: str) -> httpx.Response:
    headers = {"content-type": "application/json", **headers}
    return client.post("/v1/otlp/logs", content=body, headers=headers)


def activated(query_id: str, name: str = "kiln-firing") -> dict[str, str]:
    return {
        "event.name": "skill_activated",
        "skillbus.query_id": query_id,
        "skill.name": name,
    }


def count_used(client: httpx.Client, query_id: str) -> int:
    outcomes = get(client, f"/v1/queries/{query_id}/outcomes")["outcomes"]
    return sum(one["outcome"] == "used" for one in outcomes)


def test_an_activation_is_an_outcome(clients: Clients) -> None:
    client = clients["ann"]
    query_id = ask(client, KILN)
    answer = export(client, logs(activated(query_id), activated(query_id)))
    assert (answer.status_code, answer.json()) == (200, {})
    wait_for(lambda: count_used(client, query_id) == 1)
    body = gzip.compress(logs(activated(query_id)))
    assert export(client, body, **{"content-encoding": "gzip"}).json() == {}
    [row] = get(client, "/v1/usage", skill="crafts:kiln-firing", owner="ann")["skills"]
    assert row["used"] == 1


def test_an_activation_of_a_session_is_of_the_query_that_sent_the_skill(clients: Clients) -> None:
    client = clients["ann"]
    query_id = ask(client, KILN, session="run-7")
    ask(client, SNAPSHOTS, session="run-7")
    event = {"event.name": "skill_activated", "session.id": "run-7", "skill.name": "Kiln Firing"}
    assert export(clients["bob"], logs(event)).json()["partialSuccess"]["errorMessage"] == (
        "ignored: 1 of unknown sessions or queries"
    )
    assert export(client, logs(event)).json() == {}
    wait_for(lambda: count_used(client, query_id) == 1)


def test_what_is_ignored_is_counted(clients: Clients) -> None:
    query_id = ask(clients["ann"], KILN)
    body = logs({"event.name": "api_request"}, activated("none"), activated(query_id, "knitting"))
    partial = export(clients["ann"], body).json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == "3"
    assert partial["errorMessage"] == (
        "ignored: 1 other events; 1 of unknown sessions or queries; "
        "1 of skills that no query of the session was answered with"
    )
    partial = export(clients["bob"], logs(activated(query_id))).json()["partialSuccess"]
    assert partial["errorMessage"] == "ignored: 1 of unknown sessions or queries"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b"\x0a\x00", {"content-type": "application/x-protobuf"}, 415),
        (b"{}", {"content-encoding": "br"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0)[:-4], {"content-encoding": "gzip"}, 400),
        (gzip.compress(b" " * 80_000_000, mtime=0), {"content-encoding": "gzip"}, 413),
    ],
)
def test_bad_requests_are_refused(
    clients: Clients, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = export(clients["ann"], body, **headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
