"""The example clients of other languages, each against a running `consume` or `serve`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from config.secrets import add_password
from tests.support.program.program import ROOT, ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.servers import RunServers
from tests.support.servers.submitting import OnRabbit, OnRedis, Outside

CLIENTS = ROOT / "examples" / "clients"
TASK = "true a bicycle wheel"
FOUND = "crafts:bicycle-repair"


def _address(outside: Outside) -> str:
    file = outside.settings["broker_password_file"]
    return add_password(outside.settings["broker"], file.read_text().strip() if file else None)


def _environment(outside: Outside) -> dict[str, str]:
    values = {name.upper(): str(value) for name, value in outside.settings.items() if value}
    return {f"SKILLBUS_SUBMISSIONS__{name}": value for name, value in values.items()}


def _run(*command: str, **env: str) -> str:
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={"PATH": os.environ["PATH"], **env},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def on_redis(
    fork_server: ForkServer, run_servers: RunServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of Redis, from which `consume` takes messages."""
    outside, base = OnRedis(run_servers), tmp_path_factory.mktemp("redis")
    outside.clear()
    skillbus = Skillbus(fork_server, base / "home", **_environment(outside))
    skillbus("sync", str(write_topics(base / "crafts")))
    process = skillbus.start("consume")
    wait_for(lambda: "consuming skillbus.events" in process.text("err") or process.ended.is_set())
    wait_for(lambda: any(one["connected"] for one in _counts(skillbus)))
    yield _address(outside)

    def replied() -> dict[str, Any] | None:
        """What is reported of the process, once it has caught up with what was done."""
        [counts] = _counts(skillbus)
        return counts if counts["recorded"] and counts["replied"] else None

    counts = wait_for(replied)
    process.send(15)
    assert process.wait().code == 0, process.text("err")
    assert (counts["connected"], counts["refused"], counts["waiting"]) == (True, 0, 0)
    assert _counts(skillbus) == []
    outside.clear()


def _counts(skillbus: Skillbus) -> list[dict[str, Any]]:
    """What the processes that take submissions tell of themselves."""
    counts: list[dict[str, Any]] = skillbus("status", "--json").data["submissions"]
    return counts


@pytest.fixture(scope="module")
def on_rabbitmq(
    fork_server: ForkServer, run_servers: RunServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of RabbitMQ, from which `serve` takes messages."""
    outside, base = OnRabbit(run_servers), tmp_path_factory.mktemp("rabbitmq")
    outside.clear()
    skillbus = Skillbus(fork_server, base / "home", **_environment(outside))
    skillbus("sync", str(write_topics(base / "crafts")))
    with skillbus.serving():
        refused = skillbus("consume", code=2)
        assert "consumes the messages itself" in refused.err
        wait_for(lambda: _has_queue(outside))
        yield _address(outside)
    outside.clear()


def _has_queue(outside: OnRabbit) -> bool:
    import pika

    try:
        return outside.left() == 0
    except pika.exceptions.ChannelClosedByBroker:
        return False


def test_python_on_redis(on_redis: str) -> None:
    out = _run(sys.executable, str(CLIENTS / "ask_redis.py"), TASK, REDIS_URL=on_redis)
    first, second, *skills = out.splitlines()
    assert first == "skillbus.query.answered.v1"
    assert second.startswith("SKILL_HIT, ")
    assert skills[0].startswith(f"- {FOUND}: True a bicycle wheel")


def test_a_shell_on_redis(on_redis: str) -> None:
    if shutil.which("redis-cli") is None:
        _left_out("redis-cli is not installed")
    parts = urlsplit(on_redis)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    secret = {"REDISCLI_AUTH": unquote(parts.password)} if parts.password else {}
    out = _run(str(CLIENTS / "ask_redis.sh"), TASK, REDIS_URL=bare, **secret)
    assert out.splitlines()[0] == '"type":"skillbus.query.answered.v1"'
    assert f'"skill_id":"{FOUND}"' in out


def test_python_on_rabbitmq(on_rabbitmq: str) -> None:
    out = _run(sys.executable, str(CLIENTS / "ask_rabbitmq.py"), TASK, AMQP_URL=on_rabbitmq)
    assert out.splitlines()[0] == "skillbus.query.answered.v1"
    assert FOUND in out


@pytest.mark.parametrize("name", ["ask_mcp.py", "ask_rabbitmq.py", "ask_redis.py", "ask_redis.sh"])
def test_without_a_task_a_client_says_how_it_is_called(name: str) -> None:
    start = [sys.executable] if name.endswith(".py") else []
    run = subprocess.run(
        [*start, str(CLIENTS / name)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert run.stderr.startswith("usage: ")
    assert f'{name} "TASK"' in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_node_on_rabbitmq(on_rabbitmq: str, tmp_path: Path) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        _left_out("node and npm are not installed")
    for name in ("package.json", "package-lock.json", "ask.js"):
        shutil.copy(CLIENTS / "node" / name, tmp_path)
    got = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if got.returncode:
        _left_out("npm cannot fetch amqplib here")
    bare = subprocess.run(
        ["node", str(tmp_path / "ask.js")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (bare.returncode, bare.stderr) == (1, 'usage: node ask.js "TASK"\n')
    out = _run("node", str(tmp_path / "ask.js"), TASK, AMQP_URL=on_rabbitmq)
    assert out.splitlines()[0] == "skillbus.query.answered.v1"
    assert FOUND in out


def _left_out(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
