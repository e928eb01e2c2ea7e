"""A delivery as it came, and why one is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from config.errors import PermanentError

HOSTS = {"github": "github", "gitlab": "gitlab", "gitea": "gitea", "forgejo": "gitea"}
"""Names in the address of a webhook, and the host whose rules hold there."""

_ID_HEADERS = {
    "github": ("x-github-delivery",),
    "gitlab": ("idempotency-key", "webhook-id", "x-gitlab-event-uuid"),
    "gitea": ("x-forgejo-delivery", "x-gitea-delivery"),
}
_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


class DeliveryError(PermanentError):
    """A delivery that is refused. status: of the HTTP answer that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a host sent. host: a value of `HOSTS`. headers: by name in small letters. body: raw."""

    host: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The id that the host gave it, "" where it has none of a form that can be shown."""
        for name in _ID_HEADERS[self.host]:
            found = self.headers.get(name, "")
            if _ID.fullmatch(found):
                return found
        return ""
