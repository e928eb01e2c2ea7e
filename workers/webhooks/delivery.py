"""A webhook delivery as received, and the error that refuses a delivery."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from config.errors import PermanentError

HOSTS = {"github": "github", "gitlab": "gitlab", "gitea": "gitea", "forgejo": "gitea"}
"""The host whose rules apply, by the name in the URL of a webhook."""

_ID_HEADERS = {
    "github": ("x-github-delivery",),
    "gitlab": ("idempotency-key", "webhook-id", "x-gitlab-event-uuid"),
    "gitea": ("x-forgejo-delivery", "x-gitea-delivery"),
}
_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


class DeliveryError(PermanentError):
    """Raised to refuse a delivery. status: of the HTTP response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request of a host. host: a value of `HOSTS`. headers: by lower-case name. body: raw."""

    host: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Id that the host assigned, "" if it is missing or malformed."""
        for name in _ID_HEADERS[self.host]:
            found = self.headers.get(name, "")
            if _ID.fullmatch(found):
                return found
        return ""
