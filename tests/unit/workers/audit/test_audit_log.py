"""The audit log: whole lines by many processes, rotation, crashes, and what it must not hold."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from pathlib import Path

import click
import pytest
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from config.bundle_settings import PolicySettings
from config.errors import MisconfiguredError, PermanentError
from config.inbound_settings import AuditSettings
from config.settings import Settings
from docs.reference.schemas import render_openapi
from workers.audit.log import AuditLog, clean_object, get_local_principal, parse_record
from workers.audit.policy import record_policy_changes
from workers.audit.requests import CHANGING_ROUTES, UNCHANGING_ROUTES, RequestRecorder
from workers.cli.program import cli

UNCHANGING_COMMANDS = {
    "query",
    "outcomes export",
    "outcomes owners",
    "pins drift",
    "pins list",
    "review list",
    "review show",
    "waivers list",
    "skills diff",
    "skills history",
    "skills list",
    "skills show",
    "links dismissed",
    "sources list",
    "failures",
    "findings",
    "status",
    "usage",
    "doctor",
    "dead list",
    "dead show",
    "config show",
    "tokens list",
    "audit",
    "backup",
    "mcp",
    "hook install",
    "hook uninstall",
    "hook status",
    "hook claude-code",
    "hook codex",
    "eval",
    "train",
}
"""Commands, or groups of them, that change nothing of the library or of who may use it."""

LONG_RUNNING = {"watch", "serve", "gateway", "worker", "consume"}
"""Commands that record what they do, or what is asked of them, while they run."""


def make_settings(tmp_path: Path, **values: object) -> Settings:
    return Settings(home=tmp_path, audit=AuditSettings.model_validate(values))


def make_log(tmp_path: Path, **values: object) -> AuditLog:
    return AuditLog(make_settings(tmp_path, **values))


def test_a_record_is_one_line_and_is_read_again(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append("ci", "sources.add", "team\nof é\u2028", "done", "r-1")
    log.append("local:ana", "tokens.revoke", "ci", "refused")
    lines = log.path.read_bytes().splitlines()
    assert len(lines) == 2
    first, second = log.read()
    assert (first.principal, first.action, first.outcome) == ("ci", "sources.add", "done")
    assert (first.object, first.request_id) == ("team\nof é\u2028", "r-1")
    assert first.time.endswith("Z")
    assert first.time <= second.time
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def append_many(home: Path, name: str, count: int) -> None:
    log = make_log(home, megabytes=0.01, files=1_000)
    for number in range(count):
        log.append(name, "sources.refresh", str(number), "done")


def test_many_processes_append_whole_lines_and_lose_none(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(4)]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=append_many, args=(tmp_path, one, 60)) for one in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    log = make_log(tmp_path, megabytes=0.01, files=1_000)
    found = [(record.principal, record.object) for record in log.read()]
    for name in names:
        assert [int(one) for owner, one in found if owner == name] == list(range(60))
    assert len(list(log.path.parent.glob("audit.jsonl.*[0-9]"))) >= 2


def test_only_so_many_files_are_kept(tmp_path: Path) -> None:
    log = make_log(tmp_path, megabytes=0.001, files=3)
    for number in range(100):
        log.append("ci", "sources.refresh", str(number), "done")
    files = sorted(path.name for path in log.path.parent.glob("audit.jsonl*"))
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.lock"]
    assert all(path.stat().st_size <= 1_000 for path in log.path.parent.glob("audit.jsonl*"))
    numbers = [int(record.object) for record in log.read()]
    assert numbers == list(range(numbers[0], 100))
    single = make_log(tmp_path / "single", megabytes=0.001, files=1)
    for number in range(30):
        single.append("ci", "sources.refresh", str(number), "done")
    assert [path.name for path in single.path.parent.glob("*.jsonl*")].count("audit.jsonl.1") == 0


def test_a_file_that_is_rotated_meanwhile_is_read(tmp_path: Path) -> None:
    log = make_log(tmp_path, megabytes=0.001, files=20)
    for number in range(30):
        log.append("ci", "sources.refresh", str(number), "done")
    reading = log.read()
    numbers = [int(next(reading).object)]
    for number in range(30, 60):
        log.append("ci", "sources.refresh", str(number), "done")
    numbers += [int(record.object) for record in reading]
    assert numbers[:30] == list(range(30))
    assert numbers == list(range(len(numbers)))


def test_a_line_that_a_crash_has_cut_off_spoils_no_other(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append("ci", "sources.add", "one", "done")
    with log.path.open("ab") as file:
        file.write(b'{"time": "2026-')
    log.append("ci", "sources.add", "two", "done")
    assert [record.object for record in log.read()] == ["one", "two"]


@given(st.binary() | (st.none() | st.text() | st.lists(st.text())).map(lambda x: json.dumps(x)))
def test_any_line_is_a_record_or_none(line: bytes | str) -> None:
    parse_record(line if isinstance(line, bytes) else line.encode())


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("https://ana:secret@git.example/x.git", "https://git.example/x.git"),
        ("https://ana:se@cret@git.example/x", "https://git.example/x"),
        ("https://token@git.example/x?key=secret#secret", "https://git.example/x"),
        ("team https://a:b@c/d?e /srv", "team https://c/d /srv"),
        ("x" * 400, "x" * 299 + "…"),
        ("a \ud800", "a ?"),
    ],
)
def test_an_object_holds_no_login_and_is_short(given_text: str, kept: str) -> None:
    assert clean_object(given_text) == kept


def test_a_long_object_is_cleaned_in_linear_time() -> None:
    """Seconds at most of processor time, where quadratic time would take minutes."""
    before = time.process_time()
    assert len(clean_object("://" * 200_000)) == 300
    assert time.process_time() - before < 10


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_what_cannot_be_written_is_found_before_a_change(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(MisconfiguredError, match="nothing was changed"):
        make_log(tmp_path).check()


def test_a_folder_in_place_of_the_file_is_found_before_a_change(tmp_path: Path) -> None:
    log = make_log(tmp_path, file=tmp_path)
    with pytest.raises(MisconfiguredError, match="nothing was changed"):
        log.check()
    with pytest.raises(PermanentError, match="done, but not recorded") as caught:
        log.append("ci", "sources.add", "x", "done")
    assert str(tmp_path) in str(caught.value)
    assert str(tmp_path) not in caught.value.public_message
    blocked = make_log(tmp_path, file=tmp_path / "log")
    (tmp_path / "log.lock").mkdir()
    with pytest.raises(MisconfiguredError, match="nothing was changed"):
        blocked.check()
    (tmp_path / "audit").write_text("a file in place of the folder")
    with pytest.raises(MisconfiguredError, match="nothing was changed"):
        make_log(tmp_path).check()


def test_only_changes_need_a_log_that_can_be_written(tmp_path: Path) -> None:
    def check(method: str, path: str) -> None:
        scope = {"type": "http", "method": method, "path": path}
        RequestRecorder(make_log(tmp_path, file=tmp_path), scope, "ci").check()

    check("POST", "/v1/queries")
    check("DELETE", "/v1/queries/q-1")
    for form in ("login", "logout", "theme", "ask", "ask/q-1/cancel"):
        check("POST", f"/console/{form}")
    check("POST", "/mcp")  # the tool that changes something checks the log
    for method, path in (
        ("DELETE", "/v1/queries/q-1/outcomes"),
        ("DELETE", "/v1/sources/crafts"),
        ("POST", "/console/actions/pins/add"),
    ):
        with pytest.raises(MisconfiguredError, match="nothing was changed"):
            check(method, path)


def test_switched_off_nothing_is_written(tmp_path: Path) -> None:
    log = make_log(tmp_path, enabled=False)
    log.check()
    log.append("ci", "sources.add", "x", "done")
    record_policy_changes(Settings(home=tmp_path, audit=AuditSettings(enabled=False)))
    assert list(tmp_path.iterdir()) == []


def test_changed_settings_of_policy_are_recorded_by_name(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    record_policy_changes(settings)
    assert list(AuditLog(settings).read()) == []
    changed = Settings(home=tmp_path, policy=PolicySettings(highest_level=3, licences=("MIT",)))
    for _ in range(2):
        record_policy_changes(changed)
    record_policy_changes(settings)
    records = list(AuditLog(settings).read())
    assert [record.object for record in records] == ["policy.highest_level policy.licences"] * 2
    assert {record.principal for record in records} == {get_local_principal()}
    assert {record.action for record in records} == {"settings.change"}


def test_settings_that_a_version_adds_are_not_changed(tmp_path: Path) -> None:
    record_policy_changes(Settings(home=tmp_path))
    [known] = (tmp_path / "audit").glob("*settings*")
    hashes = json.loads(known.read_text())
    del hashes["policy.highest_level"]
    known.write_text(json.dumps(hashes))
    record_policy_changes(Settings(home=tmp_path))
    assert list(AuditLog(Settings(home=tmp_path)).read()) == []


def test_other_files_next_to_the_log_are_kept(tmp_path: Path) -> None:
    other = tmp_path / "settings.json"
    other.write_text("{}")
    record_policy_changes(make_settings(tmp_path, file=tmp_path / "audit.jsonl"))
    assert other.read_text() == "{}"


def test_changed_settings_are_recorded_if_the_first_try_ended_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path, policy=PolicySettings(highest_level=3))

    def end(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "append", end)
        with pytest.raises(SystemExit):
            record_policy_changes(settings)
    record_policy_changes(settings)
    [record] = AuditLog(settings).read()
    assert record.object == "policy.highest_level"


def test_every_route_is_known_to_change_something_or_nothing() -> None:
    paths = json.loads(render_openapi())["paths"]
    routes = {
        (method.upper(), path)
        for path, operations in paths.items()
        for method in operations
        if method not in ("get", "head")
    }
    listed = CHANGING_ROUTES.keys() | UNCHANGING_ROUTES
    known = {one for one in listed if not one[1].startswith("/console/")}
    assert routes <= known
    assert known - routes == {("POST", "/v1/answers"), ("POST", "/mcp")}
    assert APIRoute("/x/{one:path}", lambda one: one).path_format == "/x/{one}"


def list_commands(group: click.Group, prefix: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = f"{prefix}{name}"
        if isinstance(command, click.Group) and words not in UNCHANGING_COMMANDS:
            found |= list_commands(command, f"{words} ")
        else:
            found[words] = command
    return found


def test_every_command_is_recorded_or_changes_nothing() -> None:
    commands = list_commands(cli)
    recorded = {words for words, one in commands.items() if hasattr(one.callback, "audited")}
    assert not recorded & (UNCHANGING_COMMANDS | LONG_RUNNING)
    assert commands.keys() == recorded | UNCHANGING_COMMANDS | LONG_RUNNING


def test_a_log_in_a_folder_that_cannot_be_reached_cannot_be_written(tmp_path: Path) -> None:
    log = make_log(tmp_path, file=tmp_path / ("x" * 300) / "audit.jsonl")
    with pytest.raises(MisconfiguredError, match="cannot be written: nothing was changed"):
        log.check()
