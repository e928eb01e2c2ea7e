"""Classifies addresses: local, numeric, of a known installer or package index, or any other."""

from __future__ import annotations

import re

from skills.scanner.data_files import read_words

ADDRESS = re.compile(
    r"\b(?:git\+)?(?P<scheme>https?|ftps?|wss?|ssh|git)://(?:[^\s@/\"'<>)`]{1,80}@)?"
    r"(?P<host>[^\s/\"'<>)`]+)(?P<path>[^\s\"'<>)`]*)",
    re.IGNORECASE,
)
_BARE = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?$")
_LOCAL = re.compile(
    r"localhost|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|0\.0\.0\.0|\[::1\]"
    r"|[\w.-]+\.(?:local|lan|internal|corp|test)(?::|$)|[\w-]+(?::\d+)?$"
)


def is_local(address: re.Match[str]) -> bool:
    """Return whether an address is on this machine or in its network."""
    return bool(_LOCAL.match(address["host"].lower()))


def is_bare(address: re.Match[str]) -> bool:
    """Return whether the host of an address is numeric."""
    return bool(_BARE.match(address["host"]))


def is_known(address: re.Match[str], kind: str) -> bool:
    """Return whether an address is on the list `kind`; a listed host includes its subdomains.

    kind: `installers` or `indexes`.
    """
    host, path = address["host"].lower().partition(":")[0], f"{address['path'].lower()}/"
    if host == "raw.githubusercontent.com":
        return kind == "installers" and path.split("/")[1] in read_words("owners")
    parts = host.split(".")
    return any(".".join(parts[at:]) in read_words(kind) for at in range(len(parts)))
