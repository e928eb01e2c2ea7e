"""The hook in the settings files of agents: added, replaced, removed, and nothing else changed."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from config.errors import UsageError
from config.inbound_settings import HookSettings
from config.settings import Settings
from workers.agent_hook.installation import EVENTS, HookFile, build_command, open_hook_file

OTHER = {"type": "command", "command": "echo skillbus hook of another"}
OLD = "skillbus hook claude-code || exit 0"
NEW = "/old/python -I -S /there/agent_hook/launcher.py claude-code --home /h || exit 0"


@contextmanager
def listening(home: Path) -> Iterator[None]:
    """A socket in a home."""
    path = home / "serve.sock"
    folder = os.open(home, os.O_RDONLY)  # the name of a socket is bounded
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{folder}/serve.sock")
            server.listen()
            yield
    finally:
        os.close(folder)
        path.unlink(missing_ok=True)


def make_file(content: Any, agent: str = "claude-code") -> HookFile:
    text = content if content is None or isinstance(content, str) else json.dumps(content, indent=4)
    return HookFile(agent, "user", Path("settings.json"), text)


@pytest.mark.parametrize(
    "content",
    [
        {"model": "opus", "permissions": {"allow": ["Bash(ls:*)"]}},
        {"hooks": {"Stop": [{"hooks": [OTHER]}]}, "model": "opus"},
        {"hooks": {"UserPromptSubmit": [{"hooks": [OTHER]}, {"matcher": "x", "hooks": []}]}},
        {"hooks": {"SessionStart": [{"hooks": [OTHER, OTHER]}], "X": []}, "é": "\u2028"},
        '{"model":"opus","hooks":{"Stop":[]}}',
        "{}",
    ],
)
@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_installed_and_removed_the_file_is_what_it_was(content: Any, agent: str) -> None:
    before = make_file(content, agent)
    command = f"skillbus hook {agent} || exit 0"
    text = before.with_hook(command)
    after = make_file(text, agent)
    assert after.installed == dict.fromkeys(EVENTS, command)
    assert after.with_hook(command) == text
    assert after.without_hook() == before.content
    assert before.without_hook() == before.content


def test_a_missing_and_an_empty_file_get_what_the_agent_reads() -> None:
    for content in (None, "", " \n"):
        data = json.loads(make_file(content).with_hook(OLD))
        handler = {"type": "command", "command": OLD, "timeout": 5}
        assert data == {
            "hooks": {
                "UserPromptSubmit": [{"hooks": [handler]}],
                "SessionStart": [{"matcher": "compact", "hooks": [handler]}],
            }
        }


def test_a_former_command_is_replaced_wherever_it_stands() -> None:
    content = {
        "hooks": {
            "UserPromptSubmit": [
                {"hooks": [OTHER, {"type": "command", "command": OLD}]},
                {"hooks": [{"type": "command", "command": NEW}]},
            ],
            "PreToolUse": [{"hooks": [{"type": "command", "command": OLD}]}],
        }
    }
    text = make_file(content).with_hook(NEW)
    assert text.count("launcher.py") == 2
    assert OLD not in text
    hooks = json.loads(text)["hooks"]
    assert hooks["UserPromptSubmit"][0] == {"hooks": [OTHER]}
    assert "PreToolUse" not in hooks


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"hooks": []}',
        '{"hooks": {"Stop": {}}}',
        '{"hooks": {"Stop": [1]}}',
        '{"hooks": {"Stop": [{"hooks": ["x"]}]}}',
        '{"hooks": {"Stop": [{"hooks": {}}]}}',
        '{"hooks": 1}',
    ],
)
def test_a_file_of_another_form_is_refused(content: str) -> None:
    file = make_file(content)
    for change in (lambda: file.with_hook(OLD), file.without_hook, lambda: file.installed):
        with pytest.raises(UsageError, match=r"settings\.json: .*correct it first"):
            change()


def test_the_files_are_those_of_the_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    paths = [
        open_hook_file(agent, scope, project).path.relative_to(tmp_path).as_posix()
        for agent in ("claude-code", "codex")
        for scope in ("user", "project")
    ]
    assert paths == [
        ".claude/settings.json",
        "project/.claude/settings.json",
        ".codex/hooks.json",
        "project/.codex/hooks.json",
    ]
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "other"))
    assert open_hook_file("codex", "user", project).path == tmp_path / "other" / "hooks.json"
    assert open_hook_file("codex", "project", project).path.parent.name == ".codex"


def test_a_link_stays_a_link_and_the_mode_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    target.chmod(0o664)
    (tmp_path / "settings.json").symlink_to(target)
    file = open_hook_file("claude-code", "user", tmp_path)
    file.write(file.with_hook(OLD))
    assert (tmp_path / "settings.json").is_symlink()
    assert OLD in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o664
    with pytest.raises(UsageError, match="changed meanwhile"):
        file.write("{}")


def test_the_command_holds_the_settings_that_are_not_the_default(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    settings = Settings(home=home, hook=HookSettings(timeout_ms=80, token_file="/a b"))
    command = build_command("codex", "user", settings)
    words = shlex.split(command)
    assert words[:5] == ["[", "-S", str(home / "serve.sock"), "]", "&&"]
    assert words[8].endswith("agent_hook/launcher.py")
    assert words[9:] == [
        "codex",
        "--home",
        str(home),
        "--without-settings",
        "--timeout-ms",
        "80",
        "--token-file",
        "/a b",
        "||",
        "cat",
        ">",
        "/dev/null;",
        "exit",
        "0",
    ]
    remote = Settings(home=home, hook=HookSettings(url="http://127.0.0.1:1"))
    assert shlex.split(build_command("codex", "user", remote))[1:3] == ["-I", "-S"]
    assert build_command("codex", "project", settings) == "skillbus hook codex || exit 0"


def test_a_command_whose_program_is_gone_blocks_no_prompt(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    command = build_command("claude-code", "user", settings)
    for gone in ("launcher.py", "-I -S"):
        broken = command.replace(gone, "/nowhere")
        assert broken != command
        for with_socket in (False, True):
            with listening(tmp_path) if with_socket else nullcontext():
                done = subprocess.run(["/bin/sh", "-c", broken], capture_output=True, input=b"{}")
            assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("name", ["home", "a home; exit 2", "it's $HOME `id`"])
def test_without_a_socket_no_interpreter_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The prompt is read all the same: an agent may take a closed pipe for an error."""
    home = tmp_path / name
    home.mkdir()
    trace = tmp_path / "started"
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\ncat > '{trace}'\n")
    interpreter.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(interpreter))
    command = build_command("claude-code", "user", Settings(home=home))

    def run() -> None:
        prompt = b"x" * 1_000_000
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, input=prompt)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    run()
    (home / "serve.sock").write_text("not a socket")
    run()
    assert not trace.exists()
    (home / "serve.sock").unlink()
    with listening(home):
        run()
    assert trace.stat().st_size == 1_000_000
