"""Webhook secrets, read from files at each delivery, so that a change needs no restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.inbound_settings import WebhookSettings
from config.secrets import read_secret


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, never shown. source_id: the only source it is for; "" for
    all sources of its host."""

    text: str = field(repr=False)
    source_id: str = ""


def check_secrets(settings: WebhookSettings) -> None:
    """Raise MisconfiguredError if a file that the settings name cannot be used."""
    for host in ("github", "gitlab", "gitea"):
        read_secrets(settings, host)


def read_secrets(settings: WebhookSettings, host: str) -> list[Secret]:
    """Return the secrets that may sign a host's delivery; without any, no delivery is accepted.

    Raises MisconfiguredError, naming the setting, if a file is missing, unreadable or empty.
    """
    files: dict[str, tuple[Path, ...]] = {
        "github": settings.github,
        "gitlab": settings.gitlab,
        "gitea": settings.gitea,
    }
    secrets = _read(files[host], f"webhooks.{host}")
    for source_id, named in settings.sources.items():
        secrets += _read(named, f"webhooks.sources.{source_id}", source_id)
    return secrets


def _read(files: Sequence[Path], setting: str, source_id: str = "") -> list[Secret]:
    found = (read_secret(file, setting) for file in files)
    return [Secret(text, source_id) for text in found if text is not None]
