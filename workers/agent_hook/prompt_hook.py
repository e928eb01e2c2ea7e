"""The program that a coding agent runs for its hook events: it may add skills to a prompt.

It reads the event as JSON on standard input, sends a query to a running `skillbus serve`, and
writes the text for the agent's context as JSON on standard output. Its exit code is always 0:
these agents treat any other as an error, and 2 blocks the prompt. The reason of a failure is
written to standard error, with `--verbose` only.

The agent waits for it at each prompt. It therefore imports only the standard library, and only
fast modules: `_socket` and `_thread` instead of `socket`, which imports `enum`, and `threading`.
"""

from __future__ import annotations

import _socket
import _thread
import os
import sys
import time

AGENTS = ("claude-code", "codex")

DEFAULTS: dict[str, int | float | str] = {
    "timeout_ms": 150,
    "budget": 1500,
    "top": 3,
    "least_probability": 0.6,
    "url": "",
    "token_file": "",
}
"""Defaults of the settings in the group `hook`, equal to those in `config.settings`."""

_FLAGS = ("--verbose", "--without-settings")

_RESERVE_MS = 25
"""Part of the time limit that is reserved for reading the answer and writing the output."""

_END_MS = 10
"""Part of the time limit that is reserved for the exit of this process and of its shell."""

_MAX_TASK_CHARACTERS = 4_000
_MAX_SESSION_CHARACTERS = 200
SOCKET_NAME = "serve.sock"
_BLOCK = 65_536


class _Nothing(Exception):  # noqa: N818 (mostly not an error)
    """Raised when nothing is added to the prompt; its text is the reason."""


def main(words: list[str]) -> int:
    """Handle one event. words: the agent, then options. Returns the exit code, always 0."""
    started = time.monotonic() - _measure_age()
    verbose = "--verbose" in words

    ended = _thread.allocate_lock()

    def end_in_time(seconds: float) -> None:
        # A thread: a handler of signals does not run while the C library looks up a host name.
        time.sleep(seconds)
        if ended.acquire(blocking=False):
            _report("no answer in time", started, verbose)
            os._exit(0)

    try:
        options = _read_options(words)
        limit = float(options["timeout_ms"]) - _END_MS
        left = limit / 1000 - (time.monotonic() - started)
        _thread.start_new_thread(end_in_time, (max(left, 0.001),))
        text, event = _answer(options, started)
        ended.acquire()  # blocks if the time is over: the thread then ends the process
        _write(text, event)
        message = "skills added"
    except _Nothing as reason:
        message = str(reason)
    except Exception as error:  # the prompt must go on after any error
        message = f"{type(error).__name__}: {error}"
    ended.acquire(blocking=False)
    _report(message, started, verbose)
    return 0


def _measure_age() -> float:
    """Return seconds since the start of this process, including its wait on a busy machine."""
    spent = time.process_time()
    if sys.platform != "linux":
        return spent
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return spent
    return age if spent <= age < 1 else spent  # a sandbox may have other clocks


def _report(message: str, started: float, verbose: bool) -> None:
    if verbose:
        spent = (time.monotonic() - started) * 1000
        os.write(2, f"skillbus: {message} ({spent:.0f} ms)\n".encode("utf-8", "replace"))


def _answer(options: dict[str, int | float | str], started: float) -> tuple[str, str]:
    """Return the text to add to the context, and the name of the event."""
    content = _read_all()
    connection = _connect(options)
    import json  # slow to import; without a server it is not needed

    try:
        event = json.loads(content)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise _Nothing("standard input has no hook event")
    query = _build_query(event, options)
    left = float(options["timeout_ms"]) - (time.monotonic() - started) * 1000 - _RESERVE_MS
    if left < 1:
        raise _Nothing("no time left for a query")
    request = _build_request(options, json.dumps(query).encode(), int(left))
    connection.sendall(request)
    return _parse_response(_receive(connection)), event["hook_event_name"]


def _read_all() -> bytes:
    """Read standard input to its end: an agent may treat a closed pipe as an error."""
    parts = []
    while part := os.read(0, _BLOCK):
        parts.append(part)
    return b"".join(parts)


def _build_query(
    event: dict[str, object], options: dict[str, int | float | str]
) -> dict[str, object]:
    """Return the body of the query for an event; raises `_Nothing` if it needs no query."""
    query: dict[str, object] = {
        name: options[name] for name in ("budget", "top", "least_probability")
    }
    session = _get_session(event)
    if session:
        query["session"] = session
    name = event.get("hook_event_name")
    if name == "UserPromptSubmit":
        query["task"] = _get_task(event)
        return query
    if name != "SessionStart":
        raise _Nothing(f"the event {str(name)[:80]!r} is not one that this hook handles")
    if event.get("source") != "compact" or not session:
        raise _Nothing("no skills are added to this start of a session")
    # Compaction has removed the skills from the context: skills of the last prompt are sent again.
    query["resend"] = True
    return query


def _get_task(event: dict[str, object]) -> str:
    """Return the prompt of an event; a long prompt is cut to its start and its end."""
    prompt = event.get("prompt")
    prompt = prompt.strip() if isinstance(prompt, str) else ""
    if not prompt:
        raise _Nothing("the event has no prompt")
    if len(prompt) > _MAX_TASK_CHARACTERS:
        half = _MAX_TASK_CHARACTERS // 2 - 1
        prompt = f"{prompt[:half]}\n\n{prompt[-half:]}"
    # JSON allows lone surrogates; a query does not.
    return prompt.encode("utf-8", "replace").decode()


def _get_session(event: dict[str, object]) -> str:
    """Return the agent's session, or that of its sub-agent, which has its own context."""
    parts = [event.get(name) for name in ("session_id", "agent_id")]
    session = ":".join(part for part in parts if isinstance(part, str) and part)
    fits = len(session) <= _MAX_SESSION_CHARACTERS and session.isascii() and session.isprintable()
    return session if fits and session == session.strip() else ""


def _connect(options: dict[str, int | float | str]) -> _socket.socket:
    """Connect to the server at `hook.url`, or on the socket in the home."""
    if options["url"]:
        return _connect_to_url(str(options["url"]))
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    path = os.path.join(str(options["home"]), SOCKET_NAME)  # noqa: PTH118
    try:
        connection.connect(path)
    except OSError as error:
        raise _Nothing(f"no `skillbus serve` runs on {options['home']}: {error.strerror}") from None
    if _get_server_user(connection, path) != os.geteuid():
        connection.close()
        raise _Nothing(f"{path} belongs to another user; no query is sent")
    return connection


def _get_server_user(connection: _socket.socket, path: str) -> int:
    """Return the user id of the server; on systems other than Linux, that of its socket."""
    if sys.platform != "linux":
        return os.stat(path).st_uid  # noqa: PTH116
    # A `struct ucred`: process, user and group.
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _connect_to_url(url: str) -> _socket.socket:
    scheme, host, port = _parse_url(url)[:3]
    import socket  # slow to import, like `ssl`; the socket in the home needs neither

    connection = socket.create_connection((host, port))
    if scheme == "https":
        import ssl

        return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
    return connection


def _parse_url(url: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path of a URL."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority, "443" if scheme == "https" else "80"
    if scheme not in ("http", "https") or not host or not port.isdecimal():
        raise _Nothing(f"hook.url {url!r}: write http://HOST:PORT or https://HOST")
    return scheme, host.strip("[]"), int(port), (slash + path).rstrip("/")


def _build_request(options: dict[str, int | float | str], body: bytes, milliseconds: int) -> bytes:
    """Return the request, in HTTP 1.0: the response ends with the connection and has no chunks."""
    host, path = "skillbus", ""
    if options["url"]:
        path = _parse_url(str(options["url"]))[3]
        host = str(options["url"]).partition("://")[2].partition("/")[0]
    lines = [
        f"POST {path}/v1/queries?answer_within_ms={milliseconds} HTTP/1.0",
        f"Host: {host}",
        "Accept: text/markdown",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    if options["token_file"]:
        try:
            with open(str(options["token_file"]), encoding="ascii") as file:  # noqa: PTH123
                lines.append(f"Authorization: Bearer {file.read().strip()}")
        except (OSError, ValueError) as error:
            raise _Nothing(f"hook.token_file cannot be read: {error}") from None
    return "\r\n".join([*lines, "", ""]).encode() + body


def _receive(connection: _socket.socket) -> bytes:
    parts = []
    while part := connection.recv(_BLOCK):
        parts.append(part)
    return b"".join(parts)


def _parse_response(response: bytes) -> str:
    """Return the Markdown of a bundle with skills; raises `_Nothing` for any other response."""
    head, _, body = response.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    status = status_line.split(" ")[1] if " " in status_line else "none"
    if status != "200":
        raise _Nothing(f"the server answered {status}: {body[:300].decode(errors='replace')}")
    if b'"state":"cancelled"' in body and "bundle-status" not in headers:
        raise _Nothing("no answer in time")
    if "bundle-status" not in headers or len(body) != int(headers.get("content-length", -1)):
        raise _Nothing("the answer of the server is incomplete")
    if headers["bundle-status"] != "SKILL_HIT" or headers.get("bundle-skills") == "0":
        raise _Nothing(f"{headers['bundle-status']}, nothing to send")
    return body.decode()


def _write(text: str, event: str) -> None:
    """Write the output for added context, in the form that both agents read."""
    import json

    output = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    sys.stdout.write(json.dumps(output) + "\n")
    sys.stdout.flush()


def _read_options(words: list[str]) -> dict[str, int | float | str]:
    """Return the options: those among the words, and the settings for the rest."""
    given = _parse_words(words)
    home = given.pop("home", "") or os.environ.get("SKILLBUS_HOME") or get_default_home()
    home = os.path.abspath(os.path.expanduser(home))  # noqa: PTH100, PTH111
    if "--without-settings" not in words:
        given = _read_settings(home) | given
    options: dict[str, int | float | str] = {"home": home, **DEFAULTS}
    for name, value in given.items():
        try:
            options[name] = type(DEFAULTS[name])(value)
        except (KeyError, ValueError, TypeError):
            raise _Nothing(f"hook.{name}: {value!r} is not a valid value") from None
    return options


def _parse_words(words: list[str]) -> dict[str, str]:
    """Return options of the command line, `--timeout-ms 150` or `--timeout-ms=150`, by setting."""
    given: dict[str, str] = {}
    rest = iter(words[1:])
    for word in rest:
        if word in _FLAGS:
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or not (name in DEFAULTS or name == "home"):
            raise _Nothing(f"unknown option {word}")
        given[name] = value if equals else next(rest, "")
    return given


def _read_settings(home: str) -> dict[str, str]:
    """Read the group `hook` of the settings file and the environment."""
    settings: dict[str, str] = {}
    path = os.environ.get("SKILLBUS_CONFIG") or os.path.join(home, "skillbus.toml")  # noqa: PTH118
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            import tomllib  # slow to import; most homes have no settings file

            group = tomllib.load(file).get("hook", {})
            settings |= {str(name): str(value) for name, value in dict(group).items()}
    except FileNotFoundError:
        pass
    for name in DEFAULTS:
        variable = f"SKILLBUS_HOOK__{name.upper()}"
        if variable in os.environ:
            settings[name] = os.environ[variable]
    return settings


def get_default_home() -> str:
    """Return the home without SKILLBUS_HOME, as platformdirs names it."""
    if sys.platform == "darwin":
        return "~/Library/Application Support/skillbus"
    return f"{os.environ.get('XDG_DATA_HOME', '').strip() or '~/.local/share'}/skillbus"
