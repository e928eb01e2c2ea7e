"""Sessions over HTTP: tokens keep them apart, and bad requests are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.token_clients import Clients, serving_clients
from tests.support.samples.library import write_topics

TASK = "fire stoneware in an electric kiln"
KILN = "crafts:kiln-firing"


@pytest.fixture(scope="module")
def clients(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    base = tmp_path_factory.mktemp("http-sessions")
    skillbus = Skillbus(fork_server, base / "home", SKILLBUS_GATEWAY__BURST="100000")
    skillbus("sync", str(write_topics(base / "crafts")))
    with serving_clients(skillbus, {"ann": "write", "bob": "write"}) as opened:
        for client in opened.values():
            client.headers["Prefer"] = "wait=60"
        yield opened


def ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/queries", json=body)
    assert answer.status_code == 200, answer.text
    bundle: dict[str, Any] = answer.json()["bundle"]
    return bundle


def ids(bundle: dict[str, Any]) -> list[str]:
    return [skill["skill_id"] for skill in bundle["skills"]]


def test_sessions_of_the_same_id_never_mix(clients: Clients) -> None:
    first = ask(clients["ann"], task=TASK, session="job")
    assert KILN in ids(first)
    assert KILN in ids(ask(clients["bob"], task=TASK, session="job"))
    second = ask(clients["ann"], task=TASK, session="job")
    assert KILN not in ids(second)
    assert [one["skill_id"] for one in second["already_sent"]] == ids(first)
    assert second["earlier"] == 1
    assert ids(ask(clients["ann"], task=TASK, session="job", resend=True)) == ids(first)


def test_an_obstacle_needs_no_task(clients: Clients) -> None:
    ask(clients["ann"], task=TASK, session="cracks", brief=True)
    answer = ask(clients["ann"], session="cracks", obstacle="the stoneware cracked")
    assert answer["task"] == TASK
    assert answer["status"] == "SKILL_HIT"


def test_a_query_right_behind_another_knows_its_answer(
    clients: Clients,
) -> None:
    """A client that has an answer may ask on at once."""
    for number in range(10):
        session = f"quick {number}"
        assert KILN in ids(ask(clients["bob"], task=TASK, session=session))
        assert KILN not in ids(ask(clients["bob"], task=TASK, session=session))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"obstacle": "it failed"}, 422),
        ({"task": TASK, "resend": True}, 422),
        ({"task": TASK, "brief": True}, 422),
        ({"task": TASK, "session": " x"}, 422),
        ({"task": TASK, "session": "é"}, 422),
        ({"task": TASK, "session": "s", "resend": "yes"}, 422),
        ({"task": " ", "session": "s", "obstacle": "it failed"}, 400),
        ({"task": TASK, "least_probability": False}, 422),
        ({"task": TASK, "least_probability": "0.5"}, 422),
        ({"task": TASK, "record_use": "no"}, 422),
        ({"task": TASK, "record_use": None}, 422),
        ({"session": "s"}, 400),
        ({"task": TASK, "session": "s", "obstacle": "x" * 250_000}, 400),
    ],
)
def test_what_makes_no_sense_is_refused(
    clients: Clients, body: dict[str, Any], status: int
) -> None:
    answer = clients["ann"].post("/v1/queries", json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_obstacle_of_no_session_fails(clients: Clients) -> None:
    body = {"session": "never used", "obstacle": "it failed"}
    answer = clients["ann"].post("/v1/queries", json=body).json()
    assert answer["state"] == "failed"
    assert "no earlier query" in answer["reason"]


def test_resend_without_a_task_answers_the_last_one_anew(clients: Clients) -> None:
    sent = ask(clients["ann"], task=TASK, session="lost")
    answer = ask(clients["ann"], session="lost", resend=True)
    assert answer["task"] == TASK
    assert ids(answer) == ids(sent)
    refused = clients["ann"].post("/v1/queries", json={"session": "new", "resend": True})
    assert refused.json()["state"] == "failed"
    assert "no earlier query" in refused.json()["reason"]


def test_an_unlikely_bundle_is_not_sent_and_does_not_count_as_sent(clients: Clients) -> None:
    answer = ask(clients["ann"], task=TASK, session="sure", least_probability=1)
    assert answer["status"] == "NO_SKILL_HIT"
    assert "least_probability" in answer["reason"]
    sent = ask(clients["ann"], task=TASK, session="sure", least_probability=0)
    assert KILN in ids(sent)
    assert sent["probability"] < 1


def test_a_look_counts_as_sent_in_no_session(clients: Clients) -> None:
    for record_use, session in ((False, "look"), (True, "look")):
        answer = ask(clients["ann"], task=TASK, session=session, record_use=record_use)
        assert KILN in ids(answer)
    assert KILN not in ids(ask(clients["ann"], task=TASK, session="look"))


def test_what_is_not_answered_in_time_is_cancelled_and_not_sent(clients: Clients) -> None:
    client = clients["ann"]
    for attempt in range(50):  # one that is answered in a millisecond says nothing
        session = f"hurry {attempt}"
        answer = client.post(
            "/v1/queries", params={"answer_within_ms": 1}, json={"task": TASK, "session": session}
        )
        if answer.json()["state"] != "done":
            break
    # A worker that took it only then found that it was too late.
    assert client.get(answer.headers["Location"]).json()["state"] in ("cancelled", "failed")
    sent = ask(client, task=TASK, session=session)
    assert KILN in ids(sent)
    assert sent["earlier"] == 0


def test_a_request_that_is_sent_again_cancels_nothing(clients: Clients) -> None:
    client = clients["ann"]
    for attempt in range(50):  # one that is answered in a millisecond says nothing
        body, headers = {"task": TASK}, {"Idempotency-Key": f"{attempt}", "Prefer": "wait=0"}
        first = client.post("/v1/queries", json=body, headers=headers)
        within = {"answer_within_ms": 1}
        again = client.post("/v1/queries", params=within, json=body, headers=headers)
        assert again.headers["Location"] == first.headers["Location"]
        if again.status_code == 202:
            break
        assert again.json()["state"] == "done"
    assert again.json() == first.json()
    wait_for(lambda: client.get(first.headers["Location"]).json()["state"] == "done")


def test_a_bundle_as_markdown(clients: Clients) -> None:
    client = clients["ann"]
    answer = client.post(
        "/v1/queries",
        params={"answer_within_ms": 60_000},
        headers={"Accept": "text/markdown"},
        json={"task": TASK},
    )
    assert answer.headers["Content-Type"].startswith("text/markdown")
    assert answer.headers["Bundle-Status"] == "SKILL_HIT"
    assert int(answer.headers["Bundle-Skills"]) >= 1
    assert answer.text.startswith("# Skills for this task")
    place = answer.headers["Location"]
    assert answer.text.endswith(f"\n\nquery_id: {place.rpartition('/')[2]}\n")
    assert client.get(place, headers={"Accept": "text/markdown"}).text == answer.text
    for accept in ("*/*", "application/json", "text/markdown, application/json"):
        assert client.get(place, headers={"Accept": accept}).json()["state"] == "done"
    for wrong in (0, -1, "soon", 600_001):
        assert (
            client.post(
                "/v1/queries", params={"answer_within_ms": wrong}, json={"task": TASK}
            ).status_code
            == 422
        )
