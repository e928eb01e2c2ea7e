"""Checks of addresses of git repositories, which pin host names to checked IP addresses."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from config.errors import TransientError, UsageError
from config.inbound_settings import GitSettings

_PORTS = {"https": 443, "http": 80, "git": 9418}
_LOCAL = ("file", "git")
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_SSH_URL = re.compile(r"(?i:(?:git\+)?ssh(?:\+git)?://|git@).*|[\w.-]+@[\w.-]+:(?!//).*")
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
"""Allowed form of a host name; git and the resolver may read other forms differently."""
_NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)")
_BRANCH = re.compile(r"(?![-/.])(?!.*(?:\.\.|@\{|//|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+")

_UNICAST = ipaddress.IPv6Network("2000::/3")
"""Network of all public IPv6 addresses; older Python versions treat some others as public."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class GitRemote:
    """A checked address. git_options: options that pin the host name to the checked IP
    addresses."""

    url: str
    protocol: str
    git_options: tuple[str, ...] = ()


def check_url(url: str, settings: GitSettings) -> str:
    """Return the protocol of an address; raises UsageError if fetching from it is not allowed.

    Checks the text only: `resolve_remote` checks the IP addresses of the host.
    """
    if _SSH_URL.fullmatch(url):
        raise UsageError(
            f"{_redact(url)}: SSH is not supported; write https://host/path, with a token in a "
            "file (--credential-file) where a login is needed"
        )
    if url.startswith("-") or not _PRINTABLE.fullmatch(url) or "::" in url.partition("[")[0]:
        raise _not_an_address(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _not_an_address(url) from None
    if not parts.scheme:
        raise _not_an_address(url)
    allowed = (*settings.protocols, *(_LOCAL if settings.allow_local else ()))
    if parts.scheme not in allowed:
        raise UsageError(
            f"{_redact(url)}: only {', '.join(allowed)} addresses are allowed "
            "(git.protocols, git.allow_local)"
        )
    if "@" in parts.netloc:
        raise UsageError(
            f"{_redact(url)}: an address must not hold a name or password; put them in a file "
            "(--credential-file)"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"{_redact(url)}: an address of a repository has no ? and no #")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise UsageError(f"{_redact(url)}: write file:///absolute/path")
    elif not parts.hostname or port == 0:
        raise UsageError(f"{_redact(url)} names no host")
    else:
        _check_host(parts.hostname)
    return parts.scheme


def _not_an_address(url: str) -> UsageError:
    return UsageError(
        f"{_redact(url)} is not the address of a repository: write https://host/path, or add a "
        "folder of this machine with `skillbus sync FOLDER`"
    )


def _check_host(host: str) -> None:
    """Raise UsageError for a host that git and the resolver may read differently."""
    is_name = _HOST_NAME.fullmatch(host) and not _NUMERIC_HOST.fullmatch(host)
    if "%" in host or not (is_name or _is_address(host)):
        raise UsageError(f"{host!r} is not a valid host; write a name, 192.0.2.1 or [2001:db8::1]")


def check_branch(branch: str) -> None:
    """Raise UsageError unless this is a valid branch name; "" is the remote's default branch."""
    if branch and (not _BRANCH.fullmatch(branch) or branch.endswith(("/", "."))):
        raise UsageError(f"{branch!r} is not a valid branch name")


def check_subfolder(path: str) -> None:
    """Raise UsageError unless `path` is a clean relative path, or "" for all of a repository."""
    parts = path.split("/")
    unclean = any(part in ("", ".", "..") for part in parts) or "\0" in path
    if path and (unclean or ".git" in (part.lower() for part in parts)):
        raise UsageError(f"{path!r} is not a valid folder of a repository; write it as skills/team")


def resolve_remote(url: str, settings: GitSettings) -> GitRemote:
    """Resolve the host of an address, check it and pin it, so that git connects to no other host.

    Raises UsageError if fetching from the address is not allowed, TransientError for an unknown
    host.
    """
    protocol = check_url(url, settings)
    url = protocol + url[len(protocol) :]  # git knows no capitals in it
    if protocol == "file":
        return GitRemote(url, protocol)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[protocol]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TransientError(f"{url}: the host {host} cannot be resolved: {error}") from None
    addresses = list(dict.fromkeys(ipaddress.ip_address(one[4][0]) for one in found))
    if not settings.allow_private:
        inside = [str(address) for address in addresses if not is_public(address)]
        if inside:
            raise UsageError(
                f"{url}: {host} resolves to {inside[0]}, which is not a public address "
                "(git.allow_private)"
            )
    if protocol == "git":
        # git:// cannot pin a name, so the IP address replaces it.
        first = addresses[0]
        shown = f"[{first}]" if first.version == 6 else str(first)
        return GitRemote(f"git://{shown}:{port}{parts.path}", protocol)
    if _is_address(host):
        return GitRemote(url, protocol)
    ends = ",".join(f"[{one}]" if one.version == 6 else str(one) for one in addresses)
    return GitRemote(url, protocol, (f"http.curloptResolve={host}:{port}:{ends}",))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: Address) -> bool:
    """Return whether an address, and any IPv4 address embedded in it, is public."""
    inner: Address | None = None
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address.teredo:
            inner = address.teredo[1]
        if address in ipaddress.IPv6Network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is None and address not in _UNICAST:
            return False
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast


def _redact(url: str) -> str:
    """Return an address for messages: quoted, cut, and without anything before an @."""
    _, found, rest = url.rpartition("@")
    return repr(("…@" if found else "") + rest[:200])
