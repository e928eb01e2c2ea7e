"""Webhook secrets, read from files at each delivery, so that a change needs no restart."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import MisconfiguredError
from config.inbound_settings import WebhookSettings
from config.secrets import read_secret

_SIGNING_TOKEN = "whsec_"  # noqa: S105 - how GitLab's signing tokens begin


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, never shown. source_id: the only source it is for; "" for
    all sources of its host."""

    text: str = field(repr=False)
    source_id: str = ""

    def get_signing_key(self) -> bytes | None:
        """Return the key of a signing token of GitLab, None for another secret.

        Raises MisconfiguredError for a token whose key is not base64, or empty.
        """
        if not self.text.startswith(_SIGNING_TOKEN):
            return None
        try:
            key = base64.b64decode(self.text.removeprefix(_SIGNING_TOKEN), validate=True)
        except ValueError:
            key = b""
        if not key:  # anyone can sign with an empty key
            raise MisconfiguredError(
                "[webhooks]: a file has a signing token that is not whsec_ and base64; "
                "copy it from GitLab again"
            )
        return key


def check_secrets(settings: WebhookSettings) -> None:
    """Raise MisconfiguredError if a file that the settings name cannot be used."""
    for host in ("github", "gitea"):
        read_secrets(settings, host)
    for secret in read_secrets(settings, "gitlab"):
        secret.get_signing_key()


def read_secrets(settings: WebhookSettings, host: str) -> list[Secret]:
    """Return the secrets that may sign a host's delivery; without any, no delivery is accepted.

    host: a value of `delivery.HOSTS`, which is also the name of its setting. Raises
    MisconfiguredError, naming the setting, if a file is missing, unreadable or empty.
    """
    secrets = _read(getattr(settings, host), f"webhooks.{host}")
    for source_id, named in settings.sources.items():
        secrets += _read(named, f"webhooks.sources.{source_id}", source_id)
    return secrets


def _read(files: Sequence[Path], setting: str, source_id: str = "") -> list[Secret]:
    found = (read_secret(file, setting) for file in files)
    return [Secret(text, source_id) for text in found if text is not None]
