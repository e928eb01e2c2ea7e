"""Errors for the refusals of an endpoint, by status, headers and message."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping

from pydantic import SecretStr

from config.errors import MisconfiguredError
from tasks.language_model.endpoint.state import EndpointState
from tasks.language_model.frame import clean, shorten
from tasks.language_model.protocol import ModelUnavailableError

KEY_FILE = "language_model.api_key_file"
"""The setting that names the file with the key."""

_MESSAGE_TOKENS = 80
_REFUSED = frozenset({400, 413, 415, 422, 501})
_WRONG_SETTING = {
    401: f"refuses the API key; check {KEY_FILE}",
    402: "requires a payment; see the account at the provider",
    403: f"refuses access; check {KEY_FILE} and what the key may use",
    404: "does not know the model or the address; check language_model.model, and that "
    "language_model.base_url ends where /chat/completions begins, most often with /v1",
    405: "has no chat completions there; check language_model.base_url",
}
_ABOUT_PROMPT = re.compile(
    r"context.{0,20}(?:length|size|window)|too many tokens|too long"
    r"|content.{0,20}(?:filter|policy)|invalid_prompt|flagged|moderation",
    re.IGNORECASE,
)


class RefusedRequestError(Exception):
    """The endpoint refuses a field, or the size or content of the prompt. message: the
    endpoint's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def is_about_prompt(self) -> bool:
        """Whether the reason is the length or the content of the prompt."""
        return self.status == 413 or _ABOUT_PROMPT.search(self.message) is not None


class RateLimitError(Exception):
    """The endpoint limits the rate of requests. retry_after: seconds to wait, None if it names
    none."""

    def __init__(self, retry_after: float | None) -> None:
        super().__init__()
        self.retry_after = retry_after


def translate_status(
    status: int, headers: Mapping[str, str], message: str, where: str, state: EndpointState
) -> Exception:
    """Return the error of an answer with a status from 300 on.

    headers: with names in lower case. message: the server's, by `quote_message`. where: names the
    endpoint. state: records a failure or a pause.
    """
    if status == 429:
        if "insufficient_quota" in message or "credit balance" in message:
            return MisconfiguredError(f"{where}: {message}; see the account at the provider")
        return RateLimitError(read_retry_after(headers))
    if status in _REFUSED:
        state.note_refusal()
        return RefusedRequestError(status, message)
    said = f" ({message})" if message else ""
    if status in _WRONG_SETTING:
        return MisconfiguredError(f"{where} {_WRONG_SETTING[status]}{said}")
    if status < 400:
        return MisconfiguredError(
            f"{where} redirects (status {status}); set language_model.base_url to the new address"
        )
    retry_after = read_retry_after(headers)
    if retry_after is not None:
        state.pause(retry_after)
    state.fail(f"status {status}")
    return ModelUnavailableError(
        f"{where} answered with status {status}{said}", retry_after=retry_after
    )


def quote_message(message: str, key: SecretStr | None) -> str:
    """Return a server's message on one line, shortened, and without the key if the message repeats
    it."""
    if key is not None:
        message = message.replace(key.get_secret_value(), "…")
    return shorten(clean(message[:10_000]), _MESSAGE_TOKENS)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by `Retry-After` (RFC 9110, section 10.2.3), a number or a date.

    `retry-after-ms` of some servers takes precedence. None without a readable header.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    return max(0.0, date.timestamp() - time.time())
