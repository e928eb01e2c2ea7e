"""`doctor` says what a language model's endpoint can do, and what to do where it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from tests.support.program.secrecy import made_up
from tests.support.servers.language_model import (
    LanguageModelServer,
    Reply,
    broken,
    error,
    stalling,
)
from workers.monitoring.local_checks import machine_checks, run_checks


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(lambda asked: {"works": True}) as running:
        yield running


def check(server: LanguageModelServer, **changes: Any) -> dict[str, str]:
    settings = Settings(language_model=server.settings(**({"timeout_seconds": 60} | changes)))
    name = "language model"
    return run_checks({name: machine_checks(settings)[name]})[0]


def test_without_a_model_there_is_no_check() -> None:
    assert "language model" not in machine_checks(Settings())


def test_a_good_endpoint_is_described(server: LanguageModelServer, tmp_path: Path) -> None:
    server.key = made_up("api-key")
    row = check(server, api_key_file=server.write_key(tmp_path / "key"))
    assert row["state"] == "ok"
    for part in ("scripted-model", server.url, "enforces schemas", "counts tokens", " ms "):
        assert part in row["detail"]
    assert server.requests == 1


@pytest.mark.parametrize(
    ("formats", "words"),
    [(("json_object",), "enforces JSON objects, not schemas"), ((), "enforces no format")],
)
def test_what_is_enforced_is_said(
    server: LanguageModelServer, formats: tuple[str, ...], words: str
) -> None:
    server.formats = formats
    server.script = lambda asked: Reply('{"works": true}', usage=None)
    row = check(server)
    assert row["state"] == "ok"
    assert words in row["detail"]
    assert "counts no tokens" in row["detail"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "no"), "api_key_file"),
        (error(404, "no"), "base_url"),
        (broken(), "is the endpoint running"),
        (stalling(), "timeout_seconds"),
        (Reply("I cannot say."), "follows instructions"),
        (Reply("<html>"), "follows instructions"),
    ],
)
def test_a_failure_says_what_to_do(server: LanguageModelServer, reply: Reply, words: str) -> None:
    server.script = lambda asked: reply
    row = check(server, timeout_seconds=1 if reply.wait else 60)
    assert row["state"] == "failed"
    assert words in row["detail"]


def test_the_key_is_not_shown(
    server: LanguageModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.key = made_up("another-key")
    path = server.write_key(tmp_path / "key")
    server.key = made_up("api-key")
    row = check(server, api_key_file=path)
    assert row["state"] == "failed"
    assert made_up("another-key") not in json.dumps(row) + "".join(capsys.readouterr())
