"""Cursors of paginated lists: the last entry of a page, encoded as opaque text."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import Field

from config.errors import UsageError
from workers.http.models import RequestModel

WRONG_CURSOR = (
    "cursor: send the cursor of `next` unchanged and with the same filters, or begin without one"
)
Row = TypeVar("Row")

_DIGEST_BYTES = 6


class PageQuery(RequestModel):
    """Base class of the parameters of a list: its filters, and a page. Others are rejected."""

    limit: int
    cursor: str = Field("", description="from `next` of the previous page")

    def decode_cursor(self, path: str) -> str:
        """Return the entry after which the page of the list at this path begins, "" for the first.

        Raises UsageError for a malformed cursor, and for a cursor of a list with other filters.
        """
        if not self.cursor:
            return ""
        try:
            padded = self.cursor + "=" * (-len(self.cursor) % 4)
            raw = base64.b64decode(padded, altchars=b"-_", validate=True)
            text = raw[_DIGEST_BYTES:]
            if raw[:_DIGEST_BYTES] == _digest(text, path, self._filters()):
                return text.decode()
        except (binascii.Error, ValueError):
            pass
        raise UsageError(WRONG_CURSOR)

    def make_next_path(self, path: str, last: str) -> str:
        """Return the path of the page after the entry `last`."""
        filters, text = self._filters(), last.encode()
        raw = _digest(text, path, filters) + text
        cursor = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        return f"{path}?{urlencode({**filters, 'limit': self.limit, 'cursor': cursor})}"

    def _filters(self) -> dict[str, str]:
        """Return the other parameters, by name, if they are set."""
        chosen = self.model_dump(mode="json", exclude={"limit", "cursor"}, exclude_defaults=True)
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in chosen.items()
        }


def cut_page(path: str, rows: Sequence[Row], page: PageQuery) -> tuple[list[Row], str | None]:
    """Return the rows of a page, and the path of the next page, None on the last.

    Rows may move between pages if the list changes meanwhile.
    """
    start = _parse_place(page.decode_cursor(path))
    end = start + page.limit
    following = page.make_next_path(path, str(end)) if end < len(rows) else None
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
