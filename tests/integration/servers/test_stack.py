"""Servers of the stack: nothing of them stays, and what goes wrong is said."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from redis import Redis

from deploy.stack import Server, Stack, StackError, UnavailableError
from deploy.stack.asking import HOST
from tests.support.servers.servers import or_left_out

ROOT = Path(__file__).resolve().parents[3]


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.stack", "--folder", folder, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    sys.stderr.write(done.stdout + done.stderr)  # into the log of this test
    return done


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that work in this folder, or name it in an argument or a variable."""
    found = []
    for process in psutil.process_iter():
        try:
            facts = [process.cwd(), *process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in one for one in facts):
            found.append(process)
    return found


def all_gone(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not left


def client(server: Server) -> Redis:
    return Redis(host=HOST, port=server.port, password=server.password)


@pytest.mark.slow
def test_up_and_down_leave_no_process_and_no_data(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    options = ("--broker", "rabbitmq", "--language-model")
    up = command(folder, "up", *options)
    try:
        with or_left_out():
            if "is not installed" in up.stderr or "no JDK" in up.stderr:
                raise UnavailableError(up.stderr.strip())
        assert up.returncode == 0, up.stderr
        assert "make stack-down" in up.stdout
        again = command(folder, "up", *options)
        assert (again.returncode, again.stdout) == (0, up.stdout)
        status = command(folder, "status")
        assert status.returncode == 0, status.stdout
        assert status.stdout.count(", ready") == 5
        passwords = [path.read_text().strip() for path in folder.glob("data/*/password")]
        assert len(passwords) == 4
        for process in processes_of(folder):
            assert not any(word in " ".join(process.cmdline()) for word in passwords)
            for listening in process.net_connections("tcp"):
                assert listening.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1")

        # Every launcher ends when it is asked to.
        state = json.loads((folder / "state.json").read_text())
        for entry in state.values():
            os.kill(entry["process"]["pid"], signal.SIGTERM)
        deadline = time.monotonic() + 120
        while (status := command(folder, "status")).stdout.count("it is not running") < 5:
            assert time.monotonic() < deadline, status.stdout
        assert status.returncode == 1
    finally:
        down = command(folder, "down")
    assert down.returncode == 0, down.stderr
    assert all_gone(folder, 60)
    assert not (folder / "data").exists()
    assert not (folder / "servers.env").exists()
    names = ("elasticsearch", "neo4j", "redis", "rabbitmq", "language_model")
    logs = {f"{name}.log" for name in names}
    assert logs <= {path.name for path in (folder / "logs").iterdir()}
    assert "nothing was started" in command(folder, "status").stdout
    assert "nothing was running" in command(folder, "down").stdout


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = """
import sys, threading, time
from pathlib import Path
from deploy.stack import Stack, UnavailableError
stack = Stack(Path(sys.argv[1]))
def start():
    try:
        stack.start(["redis", "rabbitmq"])
    except UnavailableError as error:
        print(error, flush=True)
    else:
        print("ready", flush=True)
starting = threading.Thread(target=start)
starting.start()
starting.join()  # a thread that ends takes no server with it
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "stack"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            said = parent.stdout.readline().strip() if parent.stdout else ""
            with or_left_out():
                if said != "ready":
                    raise UnavailableError(said)
            time.sleep(0.3)
            names = {process.name() for process in processes_of(tmp_path / "stack")}
            assert {"redis-server", "beam.smp", "epmd"} <= names
        finally:
            parent.kill()
    assert all_gone(tmp_path / "stack", 60)


def test_what_was_killed_starts_again_on_its_port_and_data(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        with or_left_out():
            (server,) = stack.start(["redis"])
        url, first = server.url, server.pid
        with client(server) as redis:
            redis.set("kept", "1")
        server.kill()
        assert server.problem() == "it is not running"
        server.start_again()
        assert server.url == url
        assert server.pid != first
        with client(server) as redis:
            assert redis.get("kept") == b"1"
        with pytest.raises(StackError, match="still runs"):
            server.start_again()
    assert all_gone(tmp_path, 60)
    assert not (tmp_path / "data").exists()


def test_frozen_answers_nothing_until_thawed(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        with or_left_out():
            (server,) = stack.start(["redis"])
        server.freeze()
        assert server.running()
        assert "timed out" in str(server.problem())
        server.thaw()
        server.wait_ready(60)
        server.freeze()
        server.stop(timeout=5)  # ends a frozen one too
        assert not server.running()


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with (
            Stack(tmp_path, ports={"redis": port}) as stack,
            or_left_out(),
            pytest.raises(StackError, match=f"redis cannot have port {port}.*another port"),
        ):
            stack.start(["redis"])


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        with or_left_out():
            (server,) = stack.start(["redis"])
        with client(server) as redis:
            redis.set("a", "1")
        server.kill()
        (log,) = server.place.data.glob("appendonlydir/*.incr.aof")
        log.write_bytes(b"*what is this\r\n" + log.read_bytes())
        with pytest.raises(StackError, match=r"(?s)redis ended while it started.*append only file"):
            server.start_again()


def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        with or_left_out():
            (server,) = stack.start(["redis"])
        server.freeze()
        with pytest.raises(StackError, match=r"(?s)not ready within 1 s: timed out; the end of "):
            server.wait_ready(1)


TESTS = """
def test_first(redis_url, redis_password_file): ...
def test_second(redis_url): ...
def test_third(servers): servers.redis.kill()
"""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["3 skipped", "3 tests: redis-server is not installed: it comes with Redis"]),
        ({"CI": "true"}, ["2 errors", "redis-server is not installed"]),
        (
            {"SKILLBUS_TEST_REDIS_URL": "redis://127.0.0.1:1/0"},
            ["SKILLBUS_TEST_REDIS_URL=redis://127.0.0.1:1/0 cannot be reached", "1 skipped"],
        ),
    ],
)
def test_tests_without_their_server_are_left_out_plainly(
    tmp_path: Path, variables: dict[str, str], expected: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKILLBUS")}
    kept.pop("CI", None)
    arguments = ["-p", "tests.support.servers.servers", "-p", "no:cacheprovider", "-c", os.devnull]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, tmp_path / "test_it.py"],
        cwd=ROOT,
        env={**kept, "PATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    for words in expected:
        assert words in ran.stdout, ran.stdout + ran.stderr
