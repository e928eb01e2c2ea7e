"""The hook as Claude Code and Codex run it: a process by the installed command, events on standard
input, and a running `serve`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus

TASK = "fire stoneware in an electric kiln"

# The fields of these events, as both agents document them.
CLAUDE_CODE = {
    "transcript_path": "/home/ana/.claude/projects/x/t.jsonl",
    "cwd": "/home/ana/x",
    "permission_mode": "default",
}
CODEX = {**CLAUDE_CODE, "transcript_path": None, "model": "gpt-5", "turn_id": "t-1"}
FIELDS: dict[str, dict[str, Any]] = {"claude-code": CLAUDE_CODE, "codex": CODEX}

OUTPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hookSpecificOutput"],
    "properties": {
        "hookSpecificOutput": {
            "type": "object",
            "additionalProperties": False,
            "required": ["hookEventName", "additionalContext"],
            "properties": {
                "hookEventName": {"enum": ["UserPromptSubmit", "SessionStart"]},
                "additionalContext": {"type": "string", "maxLength": 10_000},
            },
        }
    },
}
"""What both agents accept for added context."""


@pytest.fixture(scope="module")
def skillbus(library: Skillbus, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """The library for a user with a home directory and tokens of these tests."""
    base = tmp_path_factory.mktemp("hook")
    return library.with_environment(
        HOME=str(base),
        SKILLBUS_GATEWAY__TOKENS_FILE=str(base / "tokens.json"),
        # Ten skills give less evidence than thousands; and a busy machine takes its time.
        SKILLBUS_HOOK__LEAST_PROBABILITY="0.2",
        SKILLBUS_HOOK__TIMEOUT_MS="10000",
    )


@pytest.fixture(scope="module")
def served(skillbus: Skillbus) -> Iterator[str]:
    """The address of a `serve`, which the hook also finds in the home."""
    address = f"127.0.0.1:{free_port()}"
    with skillbus.serving("--listen", address):
        yield f"http://{address}"


@cache
def install(skillbus: Skillbus, agent: str) -> str:
    """Install the hook for the user; the command that the agent finds in its settings."""
    skillbus("hook", "install", agent, "--yes")
    name = ".claude/settings.json" if agent == "claude-code" else ".codex/hooks.json"
    hooks = json.loads((Path(skillbus.env["HOME"]) / name).read_text())["hooks"]
    commands: set[str] = {
        handler["command"]
        for event in ("UserPromptSubmit", "SessionStart")
        for group in hooks[event]
        for handler in group["hooks"]
    }
    assert len(commands) == 1
    return commands.pop()


def run(command: str, event: dict[str, Any] | str) -> str:
    """What the command writes for an event, the way an agent runs it; it must succeed."""
    content = event if isinstance(event, str) else json.dumps(event)
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        input=content,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def context(output: str) -> str:
    data = json.loads(output)
    jsonschema.validate(data, OUTPUT)
    text: str = data["hookSpecificOutput"]["additionalContext"]
    return text


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_a_prompt_gets_skills_and_a_second_one_no_repetition(
    skillbus: Skillbus, agent: str
) -> None:
    command = install(skillbus, agent)
    prompt = {
        **FIELDS[agent],
        "session_id": f"one-{agent}",
        "hook_event_name": "UserPromptSubmit",
        "prompt": TASK,
    }
    first = context(run(command, prompt))
    assert "kiln-firing" in first
    assert "<passage" in first
    answer, _, query_id = first.rpartition("\n\nquery_id: ")
    assert re.fullmatch(r"[0-9a-f]{32}\n", query_id)
    again = run(command, prompt)
    assert not again or "1. kiln-firing:" not in context(again)
    other_session = context(run(command, {**prompt, "session_id": f"two-{agent}"}))
    assert other_session.startswith(answer)
    sub_agent = context(run(command, {**prompt, "agent_id": "worker"}))
    assert sub_agent.startswith(answer)

    compacted = {
        **FIELDS[agent],
        "session_id": f"one-{agent}",
        "hook_event_name": "SessionStart",
        "source": "compact",
    }
    assert "kiln-firing" in context(run(command, compacted))
    assert run(command, {**compacted, "source": "startup"}) == ""
    assert run(command, {**compacted, "session_id": "never-asked"}) == ""


@pytest.mark.usefixtures("served")
def test_off_topic_it_is_silent_and_the_session_has_got_nothing(skillbus: Skillbus) -> None:
    command = install(skillbus, "claude-code")
    prompt = {"session_id": "quiet", "hook_event_name": "UserPromptSubmit"}
    assert run(command, {**prompt, "prompt": "thanks, that is all for today"}) == ""
    sure = command.replace("--least-probability 0.2", "--least-probability 1.0")
    assert sure != command
    assert run(sure, {**prompt, "prompt": TASK}) == ""
    assert "1. kiln-firing:" in context(run(command, {**prompt, "prompt": TASK}))


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    "prompt",
    [
        f"/deploy --now; rm -rf / # {TASK}",
        json.dumps({"session": "x", "resend": True, "task": TASK, "budget": -1}),
        f"$(touch /tmp/never) `id` {TASK} \u0000 \ud800 \u202e",
        TASK + " word" * 200_000 + " " + TASK,
    ],
)
def test_a_prompt_is_only_data(skillbus: Skillbus, prompt: str) -> None:
    command = install(skillbus, "codex")
    event = {"session_id": f"data {hash(prompt)}", "hook_event_name": "UserPromptSubmit"}
    output = run(command, {**event, "prompt": prompt})
    assert not output or "kiln-firing" in context(output)
    assert not Path("/tmp/never").exists()


@pytest.mark.usefixtures("served")
def test_the_documented_command_does_the_same(skillbus: Skillbus) -> None:
    event = {"session_id": "console", "hook_event_name": "UserPromptSubmit", "prompt": TASK}
    result = skillbus("hook", "claude-code", stdin=json.dumps(event))
    assert "kiln-firing" in context(result.out)
    assert result.err == ""


def test_a_gateway_with_a_token(skillbus: Skillbus, served: str) -> None:
    secret = Path(skillbus.env["HOME"]) / "token"
    secret.write_text(skillbus("tokens", "add", "agent").out)
    event = {"session_id": "far", "hook_event_name": "UserPromptSubmit", "prompt": TASK}
    options = ["--url", served, "--verbose"]
    refused = skillbus("hook", "codex", *options, stdin=json.dumps(event))
    assert refused.out == ""
    assert "answered 401" in refused.err
    options += ["--token-file", str(secret)]
    answered = skillbus("hook", "codex", *options, stdin=json.dumps(event))
    assert "kiln-firing" in context(answered.out)
    assert secret.read_text().strip() not in answered.out + answered.err


def test_install_shows_the_change_and_asks(fork_server: ForkServer, tmp_path: Path) -> None:
    skillbus = Skillbus(fork_server, tmp_path / "home", HOME=str(tmp_path))
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    settings = project / ".claude" / "settings.json"
    before = '{\n    "model": "opus",\n    "hooks": {"Stop": []}\n}\n'
    settings.write_text(before)
    words = ("hook", "install", "claude-code", "--scope", "project")

    shown = skillbus(*words, "--dry-run", cwd=project).out
    assert f"+++ {settings}" in shown
    assert "skillbus hook claude-code || exit 0" in shown
    refused = skillbus(*words, cwd=project, code=2)
    assert "nothing was changed" in refused.err
    assert settings.read_text() == before

    skillbus(*words, "--yes", cwd=project)
    assert json.loads(settings.read_text())["model"] == "opus"
    assert "installed already" in skillbus(*words, cwd=project).out
    states = {
        (row["agent"], row["scope"]): row["state"]
        for row in skillbus("hook", "status", "--json", cwd=project).data
    }
    assert states.pop(("claude-code", "project")) == "installed"
    assert set(states.values()) == {"not installed"}

    skillbus("hook", "uninstall", "claude-code", "--scope", "project", "--yes", cwd=project)
    assert settings.read_text() == before
    again = skillbus("hook", "uninstall", "claude-code", "--scope", "project", cwd=project)
    assert "not installed" in again.out

    settings.write_text('{"model": "opus",}')
    wrong = skillbus(*words, "--yes", cwd=project, code=2)
    assert "not valid JSON" in wrong.err
    assert "line 1, column 18" in wrong.err
    assert settings.read_text() == '{"model": "opus",}'
    assert "not valid JSON" in skillbus("hook", "status", cwd=project).out


def test_settings_that_changed_since_are_reported(fork_server: ForkServer, tmp_path: Path) -> None:
    skillbus = Skillbus(fork_server, tmp_path / "home", HOME=str(tmp_path))
    skillbus("hook", "install", "codex", "--yes")
    changed = skillbus.with_environment(SKILLBUS_HOOK__BUDGET="900")
    rows = changed("hook", "status", "--json").data
    assert [row["state"] for row in rows if row["commands"]] == ["outdated: install it again"]
    in_home = skillbus("hook", "status", "--json", cwd=tmp_path).data
    assert [(row["agent"], row["state"]) for row in in_home] == [
        ("claude-code", "not installed"),
        ("codex", "installed"),
    ]
    changed("hook", "install", "codex", "--yes")
    assert (tmp_path / ".codex" / "hooks.json").read_text().count("--budget 900") == 2
