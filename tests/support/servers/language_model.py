"""A language model's server on loopback: speaks the protocol, answers by a script, misbehaves.

    with LanguageModelServer(lambda asked: {"chosen": ["a"]}) as server:
        settings = server.settings(timeout_seconds=5)
        ...
        assert server.requests == 1

The script gets each request and returns the answer: a JSON object, a pydantic model, a text, or a
`Reply`, of which the functions at the end of this module make the usual misbehaviours. Replies that
were given to `server.queue` come first. The server is real HTTP with keep-alive, one thread per
connection, and sees when a client hangs up.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from config.language_model_settings import LanguageModelSettings
from skills.token_count import count_tokens
from tasks.language_model.endpoint import state
from tests.support.servers.loopback import QuietServer

MODEL = "scripted-model"
ALL_FORMATS = ("json_schema", "json_object")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as the server got it.

    number: from 1. key: the API key; "" without one. headers: with names in lower case.
    """

    number: int
    key: str
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def instructions(self) -> str:
        """The system messages."""
        return self._text("system")

    @property
    def data(self) -> str:
        """The user messages."""
        return self._text("user")

    @property
    def format(self) -> str:
        """`json_schema`, `json_object`, or "" where none was asked for."""
        return str(self.body.get("response_format", {}).get("type", ""))

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of `json_schema`; empty without."""
        asked_format = self.body.get("response_format", {})
        found: dict[str, Any] = asked_format.get("json_schema", {}).get("schema", {})
        return found

    @property
    def temperature(self) -> float:
        """The temperature; 0 without one."""
        return float(self.body.get("temperature", 0))

    def _text(self, role: str) -> str:
        messages = self.body.get("messages", [])
        return "\n".join(one["content"] for one in messages if one["role"] == role)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server sends.

    content: text of the message; None is null. usage: tokens of prompt and answer; None leaves the
    field out; by default they are counted. model: the name in the answer; "" is the one asked for.
    choices: False sends an empty list. body: sent in place of a completion. wait: seconds before
    the first byte. cut: bytes of the body after which the connection is closed. pause: seconds
    between the bytes of the body.
    """

    content: str | None = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    model: str = ""
    usage: tuple[int, int] | None = (-1, -1)
    reasoning: str = ""
    refusal: str = ""
    choices: bool = True
    body: bytes | None = None
    wait: float = 0.0
    cut: int | None = None
    pause: float = 0.0


Answer = Reply | BaseModel | Mapping[str, Any] | str
Script = Callable[[Asked], Answer]


class LanguageModelServer:
    """The server, while the body of a `with` runs. Its attributes may be changed at any time.

    script: answers requests; called by several threads. models: names that are known; others get
    404. key: API key that is wanted; others get 401. formats: values of `response_format.type`
    that are accepted; others get 400.

    asked: every request. delivered: answers that were sent whole. disconnects: clients that hung
    up before that. running, most_running: requests at the same time. Read them after `settle`.
    """

    def __init__(
        self,
        script: Script,
        *,
        models: Collection[str] = (MODEL,),
        key: str = "",
        formats: Collection[str] = ALL_FORMATS,
    ) -> None:
        self.script = script
        self.models = models
        self.key = key
        self.formats = formats
        self.queue: deque[Answer] = deque()
        self.asked: list[Asked] = []
        self.delivered = self.disconnects = self.running = self.most_running = 0
        self.stopping = threading.Event()
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()

    def __enter__(self) -> Self:
        """Start."""
        owner: LanguageModelServer = self

        class Handler(_Handler):
            server_state = owner

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()
        self._forget_former()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and close every connection."""
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        with self._changed:
            for connection in self._connections:
                _shut(connection)
            self._changed.wait_for(lambda: not self._connections, 60)
        self._server.server_close()

    def _forget_former(self) -> None:
        """Forget what this process knows of a former server that had the same port."""
        for key in [one for one in state._STATES if one[1] == self.url]:
            del state._STATES[key]

    @property
    def url(self) -> str:
        """The value of `base_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def requests(self) -> int:
        """Number of chat completions that were asked for."""
        return len(self.asked)

    def settings(self, **changes: Any) -> LanguageModelSettings:
        """Settings that name this server; a query waits for it also where the machine is busy."""
        given = {"base_url": self.url, "model": MODEL, "query_milliseconds": 60_000}
        return LanguageModelSettings(**(given | changes))

    def write_key(self, path: Path) -> Path:
        """Write the wanted key into a file, for `api_key_file`."""
        path.write_text(self.key + "\n", encoding="utf-8")
        path.chmod(0o600)
        return path

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until no request is running."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self.running, seconds), "still running"

    def wait_for_requests(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many requests have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.requests >= count, seconds), self.requests

    def begin(self, key: str, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        """Count a request."""
        with self._changed:
            asked = Asked(len(self.asked) + 1, key, body, headers)
            self.asked.append(asked)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self._changed.notify_all()
            return asked

    def end(self, *, whole: bool, left: bool) -> None:
        """Count the end of a request."""
        with self._changed:
            self.running -= 1
            self.delivered += whole
            self.disconnects += left
            self._changed.notify_all()

    def connect(self, connection: socket.socket) -> None:
        """Note a connection."""
        with self._changed:
            self._connections.add(connection)

    def disconnect(self, connection: socket.socket) -> None:
        """Forget a connection."""
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def answer(self, asked: Asked) -> Reply:
        """The reply to a request, by the server's rules, the queue and the script."""
        if self.key and asked.key != self.key:
            return unauthorised()
        if asked.body.get("model") not in self.models:
            return unknown_model()
        if asked.format and asked.format not in self.formats:
            return error(400, f"response_format type {asked.format} is not supported")
        with self._changed:
            answer = self.queue.popleft() if self.queue else None
        return as_reply(self.script(asked) if answer is None else answer)


class _Server(QuietServer):
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    """Answers `/v1/chat/completions` and `/v1/models`."""

    protocol_version = "HTTP/1.1"
    server_state: LanguageModelServer

    def setup(self) -> None:
        """Note the connection."""
        super().setup()
        self.server_state.connect(self.connection)

    def finish(self) -> None:
        """Forget the connection."""
        self.server_state.disconnect(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer `/v1/models`."""
        if self.path != "/v1/models":
            self._send(error(404, "not found"), b"")
            return
        if self.server_state.key and self._key() != self.server_state.key:
            self._send(unauthorised(), b"")
            return
        listed = [{"id": name, "object": "model"} for name in self.server_state.models]
        self._send(Reply(body=_encode({"object": "list", "data": listed})), b"")

    def do_POST(self) -> None:
        """Answer `/v1/chat/completions`."""
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            self._send(error(404, "not found"), b"")
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = self.server_state.begin(self._key(), json.loads(raw), headers)
        whole = left = False
        try:
            reply = self.server_state.answer(asked)
            whole = self._send(reply, _completion(asked, reply))
            left = not whole and reply.cut is None and not self.server_state.stopping.is_set()
        finally:
            self.server_state.end(whole=whole, left=left)

    def _key(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _send(self, reply: Reply, completion: bytes) -> bool:
        """Send a reply; whether the client got all of it."""
        body = completion if reply.body is None else reply.body
        if not self._wait(reply.wait):
            return False
        head = [f"HTTP/1.1 {reply.status} scripted", "Content-Type: application/json"]
        head += [f"{name}: {value}" for name, value in reply.headers.items()]
        head += [f"Content-Length: {len(body)}", "", ""]
        try:
            return self._write("\r\n".join(head).encode(), body, reply)
        except OSError:
            self.close_connection = True
            return False

    def _write(self, head: bytes, body: bytes, reply: Reply) -> bool:
        if reply.cut is not None:
            self.wfile.write(head + body[: reply.cut])
            self.close_connection = True
            return False
        if not reply.pause:
            self.wfile.write(head + body)
            return True
        self.wfile.write(head)
        for position in range(len(body)):
            if not self._wait(reply.pause):
                return False
            self.wfile.write(body[position : position + 1])
        return True

    def _wait(self, seconds: float) -> bool:
        """Wait while the client stays; False once it hung up or the server stops."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.server_state.stopping.is_set():
                break
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.05))
            if readable and not self._is_connected():
                break
        else:
            return True
        self.close_connection = True
        return False

    def _is_connected(self) -> bool:
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False


def as_reply(answer: Answer) -> Reply:
    """An answer of a script as a reply."""
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, BaseModel):
        return Reply(answer.model_dump_json())
    return Reply(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _completion(asked: Asked, reply: Reply) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.refusal:
        message |= {"content": None, "refusal": reply.refusal}
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    completion: dict[str, Any] = {
        "id": f"chatcmpl-{asked.number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": reply.model or asked.body.get("model"),
        "choices": [choice] if reply.choices else [],
    }
    if reply.usage is not None:
        prompt, answer = reply.usage
        prompt = count_tokens(asked.instructions + " " + asked.data) if prompt < 0 else prompt
        answer = count_tokens((reply.content or "") + reply.reasoning) if answer < 0 else answer
        completion["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
        }
    return _encode(completion)


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the client was faster


def error(status: int, message: str, code: str = "", **headers: str) -> Reply:
    """An error as OpenAI and most other servers send it. headers: `_` stands for `-`."""
    content = {"error": {"message": message, "type": "error", "param": None, "code": code or None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=_encode(content), headers=named)


def unauthorised() -> Reply:
    """A wrong API key."""
    return error(401, "Incorrect API key provided", "invalid_api_key")


def unknown_model() -> Reply:
    """A model that the server does not have."""
    return error(404, "The model does not exist", "model_not_found")


def rate_limited(retry_after: str | None = None) -> Reply:
    """429. retry_after: seconds, or an HTTP date; None leaves the header out."""
    headers = {} if retry_after is None else {"Retry_After": retry_after}
    return error(429, "Rate limit reached", "rate_limit_exceeded", **headers)


def broken(status: int = 500) -> Reply:
    """An error of the server."""
    return error(status, "The server had an error while processing your request")


def stalling(seconds: float = 60.0, answer: Answer = "{}") -> Reply:
    """No byte for some seconds."""
    return replace(as_reply(answer), wait=seconds)


def trickling(pause: float = 0.05, answer: Answer = "{}") -> Reply:
    """One byte at a time: no read times out, and the whole takes long."""
    return replace(as_reply(answer), pause=pause)


def half_a_body(answer: Answer = "{}", after: int = 40) -> Reply:
    """A body that ends early, although its length was announced."""
    return replace(as_reply(answer), cut=after)


def huge(size: int = 10_000_000) -> Reply:
    """A valid completion with a very long text."""
    return Reply(content='{"text": "' + "x" * size + '"}')


def no_choices() -> Reply:
    """A completion without a choice."""
    return Reply(choices=False)


def thinking(answer: Answer, thoughts: str = "Is {} one?", tag: str = "think") -> Reply:
    """A block of thoughts in front of the answer. tag: "" puts them into `reasoning_content`."""
    reply = as_reply(answer)
    if not tag:
        return replace(reply, reasoning=thoughts)
    return replace(reply, content=f"<{tag}>\n{thoughts}\n</{tag}>\n\n{reply.content}")


def permuted(answer: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The answer with a wrong permutation: the last element of a list is a copy of the first."""
    return {**answer, name: [*answer[name][:-1], answer[name][0]]}
