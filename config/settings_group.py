"""Base class of the groups of settings, and a check of addresses."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict


class SettingsGroup(BaseModel):
    """A table of the settings file; unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def is_http_address(address: str) -> bool:
    """Return whether an address is http or https, with a host, and with a valid port if any."""
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
