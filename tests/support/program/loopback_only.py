"""Keeps tests on this machine: a connection to any other address is refused.

An audit hook sees every connection that Python makes, whichever library makes it. The processes
that tests fork from the preloaded one have it too; programs that are not Python have not. Servers
that variables `SKILLBUS_TEST_…_URL` name are allowed.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from urllib.parse import urlsplit

_WATCHED = frozenset({"socket.connect", "socket.sendto"})
_INHERITED = "TESTS_ALLOWED_HOSTS"
_allowed: set[str] = set()

attempts: list[str] = []
"""Addresses that were refused in this process."""


class RealAddressError(OSError):
    """A test wanted to leave this machine."""


def install() -> None:
    """Refuse connections to other machines from now on, in this process."""
    if _allowed:
        return
    _allowed.update({"", "localhost", "0.0.0.0", "::"})  # as targets: this machine
    _allowed.update(filter(None, os.environ.get(_INHERITED, "").split(",")))
    for name, value in os.environ.items():
        if name.startswith("SKILLBUS_TEST_") and name.endswith("_URL"):
            _allowed.update(_addresses(urlsplit(value).hostname or ""))
    os.environ[_INHERITED] = ",".join(sorted(_allowed))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _WATCHED:
        return
    address = arguments[1]
    if not isinstance(address, tuple) or _is_allowed(str(address[0])):
        return  # a socket in a folder has a path
    attempts.append(str(address[0]))
    raise RealAddressError(f"tests connect to loopback only, not to {address[0]}")


def _is_allowed(host: str) -> bool:
    if host in _allowed:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return {host}
    return {host, *(str(entry[4][0]) for entry in found)}
