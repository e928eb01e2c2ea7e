"""Normalised addresses of repositories, to compare addresses that are written differently."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<path>[^:].*)")
_MAX_LENGTH = 2_000


def normalise_url(address: str) -> str:
    """Return `host/path` of a repository's address, "" if the repository is not remote.

    Scheme, user, password, default port, `.git` and case are dropped, since a host serves the same
    repository over HTTPS and SSH. `git@host:path` is an SSH address too.
    """
    if len(address) > _MAX_LENGTH:
        return ""
    if "://" not in address:
        found = _SCP.fullmatch(address)
        return _join_host_path(found["host"], found["path"]) if found else ""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS:
        return ""
    host = f"[{host}]" if ":" in host else host
    is_default_port = port in (None, _PORTS[parts.scheme])
    return _join_host_path(host if is_default_port else f"{host}:{port}", parts.path)


def _join_host_path(host: str, path: str) -> str:
    name = unquote(path).strip("/").removesuffix(".git").rstrip("/")
    return f"{host.rstrip('.')}/{name}".casefold() if host and name else ""
