"""Passwords: reading from files, adding to URLs, and removing from URLs."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from config.errors import MisconfiguredError

_PASSWORD = re.compile(r"(://[^:@]*):.*@")
_SEPARATOR = re.compile(r",\s*(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)


def read_secret(path: Path | None, setting: str) -> str | None:
    """Return the one line of a secret's file; None without a file.

    Raises MisconfiguredError with the name of the setting when the file is missing, unreadable or
    empty.
    """
    if path is None:
        return None
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise MisconfiguredError(f"{setting}: {path}: {reason}") from None
    if not secret:
        raise MisconfiguredError(
            f"{setting}: {path} is empty; write the secret into it, in one line"
        )
    return secret


def add_password(url: str, password: str | None) -> str:
    """Return the URL with this password, for clients that accept it only there."""
    if password is None:
        return url
    parts = urlsplit(strip_password(url))
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))


def strip_password(url: str) -> str:
    """Return the URL without its password, for messages and logs; the URL need not be valid."""
    return _PASSWORD.sub(r"\1@", url)


def strip_passwords(urls: str) -> list[str]:
    """Return URLs, separated by commas, without their passwords, which may have commas too."""
    return [strip_password(url) for url in _SEPARATOR.split(urls)]
