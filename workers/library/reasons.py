"""Reasons that people give for pins, decisions and dismissals."""

from __future__ import annotations

from unicodedata import category

from config.errors import UsageError

MAX_REASON_CHARACTERS = 500


def check_reason(reason: str, what: str) -> None:
    """Raise UsageError for a reason that is empty, too long or holds control characters.

    what: that needs the reason, such as "a pin".
    """
    if not reason.strip():
        raise UsageError(f"{what} needs a reason; give one")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise UsageError(f"the reason has more than {MAX_REASON_CHARACTERS} characters; shorten it")
    if not all(one.isprintable() or category(one) == "Zs" for one in reason):
        raise UsageError("the reason holds control characters; write it in one line of plain text")
