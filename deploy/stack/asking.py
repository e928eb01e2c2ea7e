"""Readiness checks of the servers, in their own protocols, without client libraries.

Each function returns if the server is ready, and raises OSError or NotReadyError otherwise.
`timeout` is in seconds and applies to each step.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Mapping, Sequence

HOST = "127.0.0.1"


class NotReadyError(Exception):
    """The server answered but is not ready; the message quotes the answer."""


def ask_elasticsearch(port: int, timeout: float) -> None:
    """Check that the health of Elasticsearch's cluster is yellow or green."""
    _ask_status(port, "/_cluster/health", ("yellow", "green"), timeout)


def ask_language_model(port: int, timeout: float) -> None:
    """Check that llama.cpp's server has loaded the model."""
    _ask_status(port, "/health", ("ok",), timeout)


def _ask_status(port: int, path: str, ready: Sequence[str], timeout: float) -> None:
    """Check the field `status` of a JSON object, read over HTTP."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path)
        body = connection.getresponse().read()
    except http.client.HTTPException as error:
        raise NotReadyError(f"no answer in HTTP: {error!r}") from None
    finally:
        connection.close()
    try:
        status = json.loads(body).get("status")
    except ValueError:
        status = body[:200]
    if status not in ready:
        raise NotReadyError(f"health is {status}")


def ask_redis(port: int, password: str, timeout: float) -> None:
    """Check that Redis accepts the password and answers PING, which it refuses while it loads."""
    with socket.create_connection((HOST, port), timeout) as connection:
        connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
        answers = connection.makefile("rb")
        for expected in (b"+OK\r\n", b"+PONG\r\n"):
            line = answers.readline()
            if line != expected:
                raise NotReadyError(f"answered {line[:200]!r}")


def ask_rabbitmq(port: int, user: str, password: str, vhost: str, timeout: float) -> None:
    """Check that RabbitMQ accepts the login and opens the virtual host (AMQP 0-9-1)."""
    with socket.create_connection((HOST, port), timeout) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        _method(connection, 10, 10)
        login = f"\0{user}\0{password}".encode()
        start_ok = _long(b"") + _short(b"PLAIN") + _long(login) + _short(b"en_US")
        connection.sendall(_frame(10, 11, start_ok))
        limits = _method(connection, 10, 30)
        connection.sendall(_frame(10, 31, limits[:8]))
        connection.sendall(_frame(10, 40, _short(vhost.encode()) + _short(b"") + b"\0"))
        _method(connection, 10, 41)


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def _frame(class_id: int, method_id: int, arguments: bytes) -> bytes:
    payload = struct.pack(">HH", class_id, method_id) + arguments
    return struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce"


def _method(connection: socket.socket, class_id: int, method_id: int) -> bytes:
    """Read one frame, which must be this method; return its arguments."""
    _, _, size = struct.unpack(">BHI", _exactly(connection, 7))
    frame = _exactly(connection, size + 1)[:-1]
    if struct.unpack(">HH", frame[:4]) != (class_id, method_id):
        raise NotReadyError(f"answered {frame[:200]!r}")
    return frame[4:]


def ask_neo4j(port: int, user: str, password: str, timeout: float) -> None:
    """Check that Neo4j accepts the login and answers a query (Bolt 4.4, default database)."""
    hello = {
        "user_agent": "skillbus-stack/1",
        "scheme": "basic",
        "principal": user,
        "credentials": password,
    }
    with socket.create_connection((HOST, port), timeout) as connection:
        connection.sendall(struct.pack(">IIIII", 0x6060B017, 0x0404, 0, 0, 0))
        agreed = _exactly(connection, 4)
        if agreed != b"\x00\x00\x04\x04":
            raise NotReadyError(f"does not speak Bolt 4.4: {agreed!r}")
        _bolt(connection, b"\xb1\x01" + _packed(hello))
        database = _packed({"db": "neo4j"})
        _bolt(connection, b"\xb3\x10" + _packed("RETURN 1") + _packed({}) + database)


def _packed(value: str | Mapping[str, str]) -> bytes:
    """Encode a string of up to 255 bytes, or a map of up to 15 such strings, in PackStream."""
    if isinstance(value, str):
        text = value.encode()
        return b"\xd0" + bytes([len(text)]) + text
    items = b"".join(_packed(key) + _packed(item) for key, item in value.items())
    return bytes([0xA0 + len(value)]) + items


def _bolt(connection: socket.socket, message: bytes) -> None:
    """Send one message; the answer must be SUCCESS (tag 0x70)."""
    connection.sendall(struct.pack(">H", len(message)) + message + b"\0\0")
    answer = b""
    while True:
        (size,) = struct.unpack(">H", _exactly(connection, 2))
        if size:
            answer += _exactly(connection, size)
        elif answer:
            break
    if answer[1] != 0x70:
        raise NotReadyError(f"answered {answer[2:200]!r}")


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise NotReadyError("closed the connection")
        received += part
    return received
