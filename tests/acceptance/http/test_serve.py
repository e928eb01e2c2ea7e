"""`skillbus serve`: workers, watcher and gateway in one process, and commands that use it."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.stack.ports import free_port
from skills.events import SourceChanged, new_event
from tasks.journal.protocol import job_id
from tests.support.program.program import ForkServer, Skillbus, answers, wait_for
from tests.support.samples.library import Folder, write_skill, write_topics
from workers.monitoring.metric_specs import DEPLOYMENT_METRICS, PROCESS_METRICS

TASK = "fire stoneware in an electric kiln"
COUNT_OF_QUERIES = 'skillbus_task_seconds_count{outcome="done",task="skillbus.query"}'


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def served(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory, port: int
) -> Iterator[Skillbus]:
    base = tmp_path_factory.mktemp("served")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(write_topics(base / "crafts")))
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        yield skillbus


@pytest.fixture
def crafts(served: Skillbus) -> Path:
    return served.home.parent / "crafts"


def _ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    accepted = client.post("/v1/queries", json=body)
    assert accepted.status_code == 202, accepted.text
    path = f"/v1/queries/{accepted.json()['id']}"
    assert accepted.headers["location"] == path

    def ended() -> dict[str, Any] | None:
        state: dict[str, Any] = client.get(path).json()
        return state if state["state"] != "accepted" else None

    answered: dict[str, Any] = wait_for(ended)
    return answered


def test_queries_go_over_the_socket_and_over_loopback(served: Skillbus, port: int) -> None:
    with (
        served.client() as over_socket,
        httpx.Client(timeout=60, base_url=f"http://127.0.0.1:{port}") as loop,
    ):
        for client in (over_socket, loop):
            answer = _ask(client, task=TASK, top=2, budget=900)
            assert answer["state"] == "done"
            bundle = answer["bundle"]
            assert bundle["skills"][0]["skill_id"] == "crafts:kiln-firing"
            assert len(bundle["skills"]) <= 2
            assert bundle["tokens"] <= 900


def test_figures_for_prometheus(served: Skillbus, port: int) -> None:
    known = {series.name for series in (*PROCESS_METRICS, *DEPLOYMENT_METRICS)}
    with (
        served.client() as over_socket,
        httpx.Client(timeout=60, base_url=f"http://127.0.0.1:{port}") as loop,
    ):
        for client in (over_socket, loop):
            assert _ask(client, task=TASK)["state"] == "done"
            wait_for(lambda ask=client: COUNT_OF_QUERIES in ask.get("/metrics").text)  # type: ignore[misc]  # mypy cannot infer it
            answer = client.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=")
            families = list(text_string_to_metric_families(answer.text))
            values = {
                (sample.name, *sample.labels.values()): sample.value
                for family in families
                for sample in family.samples
            }
            assert values["skillbus_skills", "published"] > 0
            assert values["skillbus_index_lag_seconds",] == 0
            assert values["skillbus_dead_letters",] == 0
            names = {name for name, *_ in values if not name.endswith("_created")}
            assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} <= known


def test_commands_use_it(served: Skillbus, crafts: Path) -> None:
    assert served("status", "--json").data["serving"]
    assert served.chosen(TASK)[0] == "crafts:kiln-firing"
    served("query", "", code=2)
    served("query", TASK, "--filter", "source=elsewhere", code=3)
    report = served("sync", str(crafts), "--json").data
    assert report["changed"] == 0
    assert served("doctor", "--json").data


def test_changes_are_noticed(served: Skillbus, crafts: Path) -> None:
    write_skill(crafts, "zeppelin-flight", "Charter a zeppelin for an aerial survey")
    wait_for(lambda: served.chosen("charter a zeppelin")[:1] == ["crafts:zeppelin-flight"])
    (crafts / "zeppelin-flight").rename(crafts / "airship-flight")
    wait_for(lambda: served.chosen("charter a zeppelin")[:1] == ["crafts:airship-flight"])
    temporary = crafts / "airship-flight" / ".SKILL.md.swp"
    text = (crafts / "airship-flight" / "SKILL.md").read_text(encoding="utf-8")
    temporary.write_text(text.replace("zeppelin", "montgolfier"), encoding="utf-8")
    temporary.rename(crafts / "airship-flight" / "SKILL.md")
    wait_for(lambda: served.chosen("charter a montgolfier")[:1] == ["crafts:airship-flight"])
    (crafts / "airship-flight" / "SKILL.md").unlink()
    wait_for(lambda: "crafts:airship-flight" not in served.skills())


def test_a_source_may_come_while_it_runs(served: Skillbus, tmp_path: Path) -> None:
    root = tmp_path / "later"
    write_skill(root, "soldering", "Solder a loose wire to a circuit board")
    event = new_event(SourceChanged(source_id="later", root=str(root)), "tests")
    with served.client() as client:
        for _ in range(2):
            accepted = client.post("/v1/events", json=event.model_dump(mode="json"))
            assert accepted.json() == {"id": job_id(event)}
        wait_for(lambda: client.get(f"/v1/events/{job_id(event)}").json()["state"] == "done")
    wait_for(lambda: served.chosen("solder a wire")[:1] == ["later:soldering"])
    write_skill(root, "welding", "Weld a cracked bicycle frame with a torch")
    wait_for(lambda: served.chosen("weld a cracked frame")[:1] == ["later:welding"])
    assert "2 skills removed" in served("sources", "remove", "later").out


def test_one_process_writes(served: Skillbus) -> None:
    result = served("serve", code=2)
    assert f"`skillbus serve` runs on {served.home} already" in result.err
    assert served.chosen(TASK), "the first one still answers"


def test_it_stops_on_a_signal(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    for number in (signal.SIGTERM, signal.SIGINT):
        process = skillbus.start("serve")
        wait_for(lambda: answers(skillbus.home / "serve.sock"))
        process.send(number)
        result = process.wait()
        assert result.code == 0, result.err
        assert "Traceback" not in result.err
        assert not (skillbus.home / "serve.sock").exists()


def test_it_stops_in_the_middle_of_work_and_goes_on(skillbus: Skillbus, tmp_path: Path) -> None:
    root = Folder(tmp_path / "many", seed=3, size=24).root
    process = skillbus.start("serve")
    wait_for(lambda: answers(skillbus.home / "serve.sock"))
    event = new_event(SourceChanged(source_id="many", root=str(root)), "tests")
    with skillbus.client() as client:
        client.post("/v1/events", json=event.model_dump(mode="json")).raise_for_status()
        wait_for(lambda: client.get("/v1/status").json()["skills"]["published"] > 5)
    process.send(signal.SIGTERM)
    result = process.wait()
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
    report = skillbus("sync", str(root), "--json").data
    assert report["published"] == report["embedded"] == 24
    assert report["failed"] == 0


def test_addresses_that_cannot_be_listened_on(skillbus: Skillbus) -> None:
    assert "127.0.0.1:8765" in skillbus("serve", "--listen", "nonsense", code=2).err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = skillbus("serve", "--listen", address, code=2)
    assert address in result.err
    assert "Traceback" not in result.err


def test_a_socket_left_by_a_kill_is_no_hindrance(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    process = skillbus.start("serve")
    wait_for(lambda: answers(skillbus.home / "serve.sock"))
    process.kill()
    assert (skillbus.home / "serve.sock").exists()
    assert skillbus.chosen(TASK)[0] == "crafts:kiln-firing"
    skillbus("sync", str(folder))
    with skillbus.serving():
        assert skillbus("status", "--json").data["serving"]


def test_watch_keeps_in_step(skillbus: Skillbus, folder: Path) -> None:
    process = skillbus.start("watch", str(folder))
    wait_for(lambda: "watching" in process.text("err"))
    write_skill(folder, "zeppelin-flight", "Charter a zeppelin for an aerial survey")
    wait_for(lambda: skillbus.chosen("charter a zeppelin")[:1] == ["crafts:zeppelin-flight"])
    process.send(signal.SIGINT)
    assert "Traceback" not in process.wait().err


def test_a_folder_that_goes_and_comes_back(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    away = folder.with_name("away")
    with skillbus.serving():
        folder.rename(away)
        write_skill(away, "zeppelin-flight", "Charter a zeppelin for an aerial survey")
        time.sleep(2.5)
        assert len(skillbus.skills()) == 10, "absence removes nothing"
        away.rename(folder)
        wait_for(lambda: "crafts:zeppelin-flight" in skillbus.skills())


def test_polling_notices_too(fork_server: ForkServer, tmp_path: Path) -> None:
    settings = {"SKILLBUS_WATCH__FORCE_POLLING": "1", "SKILLBUS_WATCH__POLL_SECONDS": "0.5"}
    skillbus = Skillbus(fork_server, tmp_path / "home", **settings)
    folder = write_topics(tmp_path / "crafts")
    skillbus("sync", str(folder))
    with skillbus.serving():
        write_skill(folder, "zeppelin-flight", "Charter a zeppelin for an aerial survey")
        wait_for(lambda: "crafts:zeppelin-flight" in skillbus.skills())


def test_what_was_not_notified_is_found_by_looking(fork_server: ForkServer, tmp_path: Path) -> None:
    skillbus = Skillbus(fork_server, tmp_path / "home", SKILLBUS_WATCH__LOOK_SECONDS="1")
    folder = write_topics(tmp_path / "crafts")
    skillbus("sync", str(folder))
    file = folder / "kiln-firing" / "SKILL.md"
    # A write under another name outside the folder notifies no watcher of it.
    other_name = tmp_path / "elsewhere.md"
    other_name.hardlink_to(file)
    with skillbus.serving():
        before = skillbus.skills()["crafts:kiln-firing"]["seq"]
        text = other_name.read_text(encoding="utf-8")
        other_name.write_text(text.replace("stoneware", "porcelain"), encoding="utf-8")
        wait_for(lambda: skillbus.skills()["crafts:kiln-firing"]["seq"] > before)
        assert "porcelain" in skillbus.skills()["crafts:kiln-firing"]["description"]
