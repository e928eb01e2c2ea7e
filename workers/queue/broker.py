"""The broker that submissions come from, as the settings name it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from config.errors import UsageError
from config.inbound_settings import SubmissionSettings
from config.secrets import add_password, read_secret, strip_password
from config.server_settings import BROKER_SYSTEMS
from config.settings import Settings


@dataclass(frozen=True, slots=True)
class Broker:
    """Address and settings of the broker of submissions.

    url: with the password, never shown. address: without it. password_setting: name of the setting
    with the password file. timeout_seconds: of one call.
    """

    url: str = field(repr=False)
    address: str
    password_setting: str
    timeout_seconds: float
    settings: SubmissionSettings

    @property
    def is_redis(self) -> bool:
        """True for Redis, False for RabbitMQ."""
        return BROKER_SYSTEMS[urlsplit(self.url).scheme] == "redis"


def get_submission_broker(settings: Settings) -> Broker:
    """Return the broker of `submissions.broker`, or else of `servers.broker`.

    Raises UsageError if neither is set, MisconfiguredError for an unreadable password file.
    """
    own, servers = settings.submissions, settings.servers
    if own.broker:
        name, url, file = "submissions.broker", own.broker, own.broker_password_file
    else:
        name, url, file = "servers.broker", servers.broker, servers.broker_password_file
    if not url:
        raise UsageError("no broker is set: name one with submissions.broker")
    secret = f"{name}_password_file"
    found = add_password(url, read_secret(file, secret))
    return Broker(found, strip_password(url), secret, servers.timeout_seconds, own)
