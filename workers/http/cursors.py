"""Cursors of paginated lists: the last entry of a page, encoded as opaque text."""

from __future__ import annotations

import base64
import binascii
import hashlib

from config.errors import UsageError

_DIGEST_BYTES = 6


def encode_cursor(last: str, filters: str) -> str:
    """Return the cursor after the entry `last` of a list with these filters."""
    text = last.encode()
    return base64.urlsafe_b64encode(_digest(text, filters) + text).decode().rstrip("=")


def decode_cursor(cursor: str, filters: str) -> str:
    """Return the entry that a cursor was made for, "" for an empty cursor.

    Raises UsageError for a malformed cursor and for a cursor of other filters.
    """
    if not cursor:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        text = raw[_DIGEST_BYTES:]
        if raw[:_DIGEST_BYTES] == _digest(text, filters):
            return text.decode()
    except (binascii.Error, ValueError):
        pass
    raise UsageError(
        "cursor: take it as `next` gave it, together with the same filters; or begin without one"
    )


def _digest(text: bytes, filters: str) -> bytes:
    return hashlib.sha256(filters.encode() + b"\0" + text).digest()[:_DIGEST_BYTES]
