"""What the hook asks for an event, what it makes of a response, and what it reads as settings."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.inbound_settings import HookSettings
from skills.events import QueryAsked
from workers.agent_hook import prompt_hook

LAUNCHER = Path(prompt_hook.__file__).with_name("launcher.py")
PROMPT = {"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "prompt": "fire stoneware"}


def build(event: dict[str, Any]) -> dict[str, object]:
    return prompt_hook._build_query(event, {**prompt_hook.DEFAULTS})


def run(
    *words: str, content: bytes = b"{}", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCHER), *words],
        input=content,
        capture_output=True,
        env={"PATH": os.environ["PATH"], **(env or {})},
        check=False,
    )


def test_the_defaults_are_those_of_the_settings() -> None:
    assert HookSettings().model_dump() == prompt_hook.DEFAULTS


def test_the_default_home_is_that_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "/data"):
        monkeypatch.setenv("XDG_DATA_HOME", value)
        home = Path(prompt_hook.get_default_home()).expanduser()
        assert home == platformdirs.user_data_path("skillbus", appauthor=False)


def test_a_prompt_is_asked_in_the_session_of_the_agent() -> None:
    assert build(PROMPT) == {
        "task": "fire stoneware",
        "session": "s-1",
        "budget": 1500,
        "top": 3,
        "least_probability": 0.6,
    }
    assert build({**PROMPT, "agent_id": "a-2"})["session"] == "s-1:a-2"


LONG = st.text(min_size=1, max_size=99).map(lambda text: (text * 4_001)[: 4_001 + len(text)])


@given(
    st.fixed_dictionaries(
        {"prompt": st.text(min_size=1) | LONG},
        optional={"session_id": st.text(max_size=210) | st.integers(), "agent_id": st.text()},
    )
)
def test_any_prompt_makes_a_query_that_is_accepted(event: dict[str, Any]) -> None:
    if not event["prompt"].strip():
        return
    query = build({"hook_event_name": "UserPromptSubmit", **event})
    QueryAsked.model_validate_json(json.dumps(query))
    assert len(str(query["task"])) <= 4_000


def test_a_huge_prompt_keeps_its_start_and_its_end() -> None:
    task = str(build({**PROMPT, "prompt": "start " + "x" * 1_000_000 + " end"})["task"])
    assert task.startswith("start ")
    assert task.endswith(" end")
    blank = "\n" * 5_000
    assert build({**PROMPT, "prompt": f"{blank}fire{blank}"})["task"] == "fire"
    halves = build({**PROMPT, "prompt": "a \ud800 b"})["task"]
    assert halves == "a ? b"


def test_only_compaction_sends_again() -> None:
    start = {"session_id": "s-1", "hook_event_name": "SessionStart"}
    query = build({**start, "source": "compact"})
    assert query["resend"] is True
    assert "task" not in query
    for source in ("startup", "resume", "clear", None):
        with pytest.raises(prompt_hook._Nothing):
            build({**start, "source": source})
    with pytest.raises(prompt_hook._Nothing):
        build({"hook_event_name": "SessionStart", "source": "compact"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no hook event"),
        (b"{", "no hook event"),
        (b"[1]", "no hook event"),
        (b"\xff", "no hook event"),
        (b"{}", "'None' is not one that this hook handles"),
        (b'{"hook_event_name": "Stop"}', "'Stop' is not one"),
        (b'{"hook_event_name": "UserPromptSubmit"}', "no prompt"),
        (b'{"hook_event_name": "UserPromptSubmit", "prompt": " "}', "no prompt"),
        (b'{"hook_event_name": "UserPromptSubmit", "prompt": 7}', "no prompt"),
    ],
)
def test_any_other_input_adds_nothing(tmp_path: Path, content: bytes, message: str) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "serve.sock"))
        server.listen()
        words = ("codex", "--home", str(tmp_path), "--timeout-ms", "60000", "--verbose")
        done = run(*words, content=content)
    assert (done.returncode, done.stdout) == (0, b"")
    assert message in done.stderr.decode()


def test_without_a_server_it_ends_in_silence(tmp_path: Path) -> None:
    event = json.dumps(PROMPT).encode()
    words = ("claude-code", "--home", str(tmp_path), "--timeout-ms", "60000")
    done = run(*words, content=event)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = run(*words, "--verbose", content=event)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"no `skillbus serve` runs on" in done.stderr


def test_a_server_that_does_not_answer_is_left_in_time(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "serve.sock"))
        server.listen()
        words = ("codex", "--home", str(tmp_path), "--timeout-ms", "500", "--verbose")
        done = run(*words, content=json.dumps(PROMPT).encode())
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"no answer in time" in done.stderr


SILENT_RESOLVER = """
import ctypes, os, socket, struct, sys, time
sys.path.append(sys.argv.pop(1))
import prompt_hook
libc = ctypes.CDLL(None)
libc.__res_init()
libc.__res_state.restype = ctypes.c_void_p
port = struct.pack("!H", int(sys.argv.pop(1)))
server = struct.pack("=iH", 1, socket.AF_INET) + port + socket.inet_aton("127.0.0.1") + bytes(8)
state = libc.__res_state()
ctypes.memmove(state, struct.pack("=i", 60), 4)  # retrans: seconds to wait for an answer
ctypes.memmove(state + 16, server, len(server))  # nscount and nsaddr_list
end = int(sys.argv.pop(1))
time.sleep = lambda seconds: os.read(end, 1)
sys.exit(prompt_hook.main(sys.argv[1:]))
"""
"""Runs the hook with the C library's resolver set to a port of this machine. Its time limit ends
when a pipe is written to: on a busy machine, it could end before the resolver is asked."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it changes state of glibc")
def test_a_resolver_that_does_not_answer_is_left_in_time() -> None:
    import socket

    reader, writer = os.pipe()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 0))
        resolver.settimeout(60)
        values = (str(LAUNCHER.parent), str(resolver.getsockname()[1]), str(reader))
        words = ("codex", "--url", "https://skillbus.example", "--verbose")
        with subprocess.Popen(
            [sys.executable, "-c", SILENT_RESOLVER, *values, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(reader,),
        ) as hook:
            os.close(reader)
            try:
                assert hook.stdin is not None
                hook.stdin.write(json.dumps(PROMPT).encode())
                hook.stdin.close()
                hook.stdin = None
                assert b"skillbus" in resolver.recv(512)
            finally:
                os.close(writer)  # ends the time limit, also after a failure
            out, errors = hook.communicate(timeout=60)
    assert (hook.returncode, out) == (0, b"")
    assert b"no answer in time" in errors


def test_a_server_of_another_user_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    options: dict[str, int | float | str] = {"url": "", "home": str(tmp_path)}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "serve.sock"))
        server.listen()
        prompt_hook._connect(options).close()
        server.accept()[0].close()
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        with pytest.raises(prompt_hook._Nothing, match="belongs to another user"):
            prompt_hook._connect(options)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b""


def test_standard_input_that_stays_open_is_left_in_time(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(LAUNCHER), "codex", "--home", str(tmp_path)],
            stdin=reader,
            capture_output=True,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bogus",), "unknown option --bogus"),
        (("prompt",), "unknown option prompt"),
        (("--budget", "many"), "hook.budget: 'many'"),
        (("--timeout-ms",), "hook.timeout_ms: ''"),
        (("--url", "ftp://host"), "write http://HOST:PORT"),
        (("--url", "http://127.0.0.1:1"), "ConnectionRefusedError"),
    ],
)
def test_wrong_options_are_no_error_of_the_prompt(words: tuple[str, ...], message: str) -> None:
    done = run("codex", "--verbose", "--timeout-ms", "60000", *words)
    assert (done.returncode, done.stdout) == (0, b"")
    assert message in done.stderr.decode()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(prompt_hook._Nothing, match=f"hook.token_file cannot be read: .*{missing}"):
        prompt_hook._build_request({"url": "", "token_file": str(missing)}, b"", 100)


def test_settings_come_from_options_then_variables_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "skillbus.toml"
    file.write_text("[hook]\nbudget = 400\ntop = 2\nleast_probability = 0.7\n")
    monkeypatch.setenv("SKILLBUS_HOOK__TOP", "4")
    home = ["codex", "--home", str(tmp_path)]
    options = prompt_hook._read_options([*home, "--least-probability=0.9"])
    assert (options["budget"], options["top"], options["least_probability"]) == (400, 4, 0.9)
    options = prompt_hook._read_options([*home, "--without-settings"])
    assert (options["budget"], options["top"], options["least_probability"]) == (1500, 3, 0.6)
    file.write_text("[hook\n")
    assert b"TOMLDecodeError" in run(*home, "--verbose").stderr


HEAD = (
    b"HTTP/1.1 200 OK\r\nBundle-Status: SKILL_HIT\r\nBundle-Skills: 1\r\nContent-Length: 4\r\n\r\n"
)


def test_only_a_whole_bundle_with_skills_is_used() -> None:
    assert prompt_hook._parse_response(HEAD + b"text") == "text"
    for response in (
        b"",
        b"nonsense",
        HEAD + b"tex",
        HEAD.replace(b"200", b"504") + b"text",
        HEAD.replace(b"SKILL_HIT", b"NO_SKILL_HIT") + b"text",
        HEAD.replace(b"Skills: 1", b"Skills: 0") + b"text",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext",
    ):
        with pytest.raises(prompt_hook._Nothing):
            prompt_hook._parse_response(response)


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("http://host", ("http", "host", 80, "")),
        ("https://host/base/", ("https", "host", 443, "/base")),
        ("http://127.0.0.1:8765", ("http", "127.0.0.1", 8765, "")),
        ("http://[::1]:8765/x", ("http", "::1", 8765, "/x")),
        ("http://[::1]", ("http", "::1", 80, "")),
    ],
)
def test_urls_are_taken_apart(url: str, parsed: tuple[str, str, int, str]) -> None:
    assert prompt_hook._parse_url(url) == parsed


def test_it_imports_little() -> None:
    """Without a server neither JSON nor regular expressions; never anything of the program."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", str(LAUNCHER), "codex", "--home", "/no"],
        input=b"{}",
        capture_output=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "prompt_hook" in imported
    assert not imported & {"json", "re", "enum", "socket", "pathlib", "typing", "workers", "config"}
