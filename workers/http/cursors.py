"""Cursors of paginated lists: the last entry of a page, encoded as opaque text."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field

from config.errors import UsageError

WRONG_CURSOR = (
    "cursor: take it as `next` gave it, together with the same filters; or begin without one"
)
Row = TypeVar("Row")

_DIGEST_BYTES = 6


def encode_cursor(last: str, path: str, filters: Mapping[str, str]) -> str:
    """Return the cursor after the entry `last` of the list at a path with these filters."""
    text = last.encode()
    return base64.urlsafe_b64encode(_digest(text, path, filters) + text).decode().rstrip("=")


def decode_cursor(cursor: str, path: str, filters: Mapping[str, str]) -> str:
    """Return the entry that a cursor was made for, "" for an empty cursor.

    Raises UsageError for a malformed cursor and for a cursor of another list.
    """
    if not cursor:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
        text = raw[_DIGEST_BYTES:]
        if raw[:_DIGEST_BYTES] == _digest(text, path, filters):
            return text.decode()
    except (binascii.Error, ValueError):
        pass
    raise UsageError(WRONG_CURSOR)


def make_next_path(path: str, filters: Mapping[str, str], limit: int, last: str) -> str:
    """Return the path of the page after the entry `last`."""
    place = {"limit": str(limit), "cursor": encode_cursor(last, path, filters)}
    return f"{path}?{urlencode({**filters, **place})}"


class PageQuery(BaseModel):
    """Base class of the parameters of a list. Other parameters are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int
    cursor: str = Field("", description="from `next` of the previous page")


def cut_page(
    path: str, rows: Sequence[Row], page: PageQuery, filters: Mapping[str, str] | None = None
) -> tuple[list[Row], str | None]:
    """Return the rows of a page, and the path of the next page, None on the last.

    filters: of the list. Rows may move between pages if the list changes meanwhile.
    """
    filters = filters or {}
    start = _parse_place(decode_cursor(page.cursor, path, filters))
    end = start + page.limit
    following = make_next_path(path, filters, page.limit, str(end)) if end < len(rows) else None
    return list(rows[start:end]), following


def _parse_place(text: str) -> int:
    """Return the number of the first row of a page, 0 without a cursor."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise UsageError(WRONG_CURSOR)
    return int(text)


def _digest(text: bytes, path: str, filters: Mapping[str, str]) -> bytes:
    listed = f"{path}?{urlencode(filters)}".encode()
    return hashlib.sha256(listed + b"\0" + text).digest()[:_DIGEST_BYTES]
