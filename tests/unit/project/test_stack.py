"""The local server stack, as far as it goes without servers."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.load_settings import load_settings
from deploy.stack import (
    Stack,
    StackError,
    UnavailableError,
    asking,
    language_model,
    packages,
    programs,
    state,
)
from deploy.stack.__main__ import main
from deploy.stack.asking import NotReadyError
from deploy.stack.ports import PORTS, free_port, problem_with
from deploy.stack.processes import Process

SERVERS = ("redis", "elasticsearch", "neo4j")


def make_jdk(home: Path, release: str, *, compiler: bool = True) -> Path:
    for program in ("java", "javac") if compiler else ("java",):
        path = home / "bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{release}"\n')
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no program; its folder of Java homes."""
    homes = tmp_path / "jvm"
    homes.mkdir()
    monkeypatch.setattr(programs, "JVM_FOLDER", homes)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return homes


def test_without_jdk_the_message_names_the_package(bare: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no JDK 21 or later.*openjdk-21-jdk-headless"):
        programs.find_jdk(21)


def test_what_does_not_fit_is_said(bare: Path) -> None:
    make_jdk(bare / "old", "17.0.15")
    make_jdk(bare / "runtime", "25.0.1", compiler=False)
    with pytest.raises(UnavailableError) as caught:
        programs.find_jdk(21)
    assert f"{bare / 'old'} (JDK, release 17)" in str(caught.value)
    assert f"{bare / 'runtime'} (runtime without compiler, release 25)" in str(caught.value)


def test_jdk_is_found_under_the_folder_of_homes(bare: Path) -> None:
    make_jdk(bare / "a", "17.0.15")
    wanted = make_jdk(bare / "b", "21.0.2")
    assert programs.find_jdk(21) == wanted


def test_java_home_goes_first(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jdk(bare / "a", "21")
    named = make_jdk(tmp_path / "named", "25")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert programs.find_jdk(21) == named


def test_java_on_path_is_followed_to_its_home(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_jdk(tmp_path / "real", "21")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").symlink_to(home / "bin/java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert programs.find_jdk(21) == home


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("mvn", "maven"),
        ("redis-server", "redis-server"),
        ("rabbitmq-server", "rabbitmq-server"),
        ("epmd", "erlang-base"),
    ],
)
def test_missing_program_names_its_package(bare: Path, name: str, package: str) -> None:
    with pytest.raises(UnavailableError, match=rf"{name} is not installed.*apt install {package}"):
        programs.find(name)


def test_elsewhere_than_on_linux_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnavailableError, match="Linux only"):
        programs.find_jdk(21)


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_what_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["up", "--redis-port", port])
    assert f"'{port}' is no port" in capsys.readouterr().err


def test_versions_are_pinned() -> None:
    pinned = packages.versions()
    assert set(pinned) == {"elasticsearch", "neo4j", "java"}


def test_a_failed_fill_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").touch()
        raise StackError("no network")

    folder = tmp_path / "cache/jars"
    with pytest.raises(StackError):
        packages.make(folder, broken)
    assert not folder.exists()
    packages.make(folder, lambda draft: (draft / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]
    packages.make(folder, broken)  # not called again


def test_a_failed_fetch_quotes_maven(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_jdk(bare / "jdk", packages.versions()["java"])
    maven = tmp_path / "bin/mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\necho '[ERROR] no route to host'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent))
    monkeypatch.setattr(packages, "CACHE", tmp_path / "cache")
    with pytest.raises(UnavailableError, match=r"(?s)could not fetch neo4j.*no route to host"):
        packages.package("neo4j")


def test_a_free_port_is_free_and_not_one_for_outgoing_connections() -> None:
    port = free_port()
    assert port in PORTS
    with socket.socket() as taken:
        taken.bind((asking.HOST, port))
        taken.listen()
        assert problem_with(port) == os.strerror(98)


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    stack = Stack(tmp_path, ports={"redis": 23_456})
    redis, rabbitmq = stack.server("redis"), stack.server("rabbitmq")
    redis.process, rabbitmq.helpers = Process(11, 22), {"epmd": Process(33, 44)}
    state.save(tmp_path, stack.servers)
    again = Stack(tmp_path)
    again.adopt()
    assert again.server("redis").port == 23_456
    assert again.server("redis").process == Process(11, 22)
    assert again.server("rabbitmq").helpers == {"epmd": Process(33, 44)}
    assert again.server("rabbitmq").place.ports == rabbitmq.place.ports


def test_a_second_node_joins_the_first_whichever_is_asked_for(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    second = stack.server("elasticsearch_2")
    first = stack.servers["elasticsearch"]
    state.save(tmp_path, stack.servers)
    again = Stack(tmp_path)
    again.adopt()
    for one in (second, again.server("elasticsearch_2")):
        assert one.place.joined == first.place.ports
    assert not set(first.place.ports.values()) & set(second.place.ports.values())
    servers = {name: again.server(name) for name in ("elasticsearch_2", *SERVERS)}
    settings = state.write_settings(tmp_path, servers, "redis").read_text()
    assert f"SKILLBUS_SERVERS__ELASTICSEARCH={first.url},{second.url}\n" in settings


def test_a_server_that_an_interrupted_start_left_out_is_not_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = Stack(tmp_path)
    stack.server("redis")
    state.save(tmp_path, stack.servers)
    assert main(["--folder", str(tmp_path), "status"]) == 1
    assert "process none, 0 MB, not ready: it is not running" in capsys.readouterr().out


def test_a_process_that_took_over_the_id_is_another() -> None:
    mine = Process(os.getpid(), 1)
    assert not mine.alive()
    mine.kill()  # and is not killed


@pytest.mark.parametrize("text", ["", "[]", '{"redis": {"ports": {}}}'])
def test_broken_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / state.STATE).write_text(text)
    with pytest.raises(StackError, match="cannot be read"):
        state.load(tmp_path)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_settings_name_every_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: str
) -> None:
    stack = Stack(tmp_path / "a folder")
    servers = {name: stack.server(name) for name in ("redis", "rabbitmq", "elasticsearch", "neo4j")}
    file = state.write_settings(tmp_path, servers, broker)
    for line in file.read_text().splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value.strip("'"))
    settings = load_settings(tmp_path / "home")
    assert settings.distributed
    assert settings.servers.broker == servers[broker].url
    assert settings.servers.broker_password_file == servers[broker].password_file
    assert settings.servers.redis == servers["redis"].url
    assert settings.servers.neo4j_password_file == servers["neo4j"].password_file
    assert settings.servers.elasticsearch_password_file is None
    assert settings.language_model.base_url == ""


def test_settings_name_the_language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(tmp_path / "a folder")
    for name in ("redis", "elasticsearch", "neo4j", "language_model"):
        stack.server(name)
    file = state.write_settings(tmp_path, stack.servers, "redis")
    for line in file.read_text().splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value.strip("'"))
    settings = load_settings(tmp_path / "home").language_model
    server = stack.servers["language_model"]
    assert (settings.base_url, settings.model) == (server.url, "skillbus-tiny")
    assert settings.api_key_file == server.password_file


def test_a_python_without_the_packages_of_the_model_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(language_model, "PYTHONS", (bare, tmp_path / "missing"))
    language_model.find_python.cache_clear()
    with pytest.raises(UnavailableError, match=r"xllamacpp is not installed.*make install"):
        Stack(tmp_path).server("language_model").prepare()


def test_passwords_are_private_and_not_among_the_arguments(tmp_path: Path) -> None:
    server = Stack(tmp_path).server("redis")
    path = server.password_file
    assert path is not None
    assert len(server.password) >= 32
    assert server.password == path.read_text().strip()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


@contextmanager
def answering(reply: bytes | None) -> Iterator[int]:
    """A port where every connection gets this reply and is closed; None: it is left waiting."""
    with socket.create_server((asking.HOST, 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                if reply is None:
                    done.wait()
                else:
                    connection.sendall(reply)

        done = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        done.set()
        thread.join()


QUESTIONS: dict[str, Callable[[int], None]] = {
    "elasticsearch": lambda port: asking.ask_elasticsearch(port, 0.2),
    "neo4j": lambda port: asking.ask_neo4j(port, "neo4j", "word", 0.2),
    "redis": lambda port: asking.ask_redis(port, "word", 0.2),
    "rabbitmq": lambda port: asking.ask_rabbitmq(port, "user", "word", "host", 0.2),
    "language_model": lambda port: asking.ask_language_model(port, 0.2),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("reply", [b"", b"-LOADING in a while, really\r\n"])
def test_another_answer_is_not_ready(name: str, reply: bytes) -> None:
    with answering(reply) as port, pytest.raises((NotReadyError, OSError)):
        QUESTIONS[name](port)


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_answer_is_not_waited_for_long(name: str) -> None:
    with answering(None) as port, pytest.raises(TimeoutError):
        QUESTIONS[name](port)


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_server_is_not_ready(name: str) -> None:
    with pytest.raises(ConnectionRefusedError):
        QUESTIONS[name](free_port())


def test_elasticsearch_that_is_red_is_not_ready() -> None:
    reply = b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"status":"red"}'
    with answering(reply) as port, pytest.raises(NotReadyError, match="health is red"):
        asking.ask_elasticsearch(port, 1)
