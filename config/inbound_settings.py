"""Settings of the inbound interfaces: HTTP gateway, webhooks, hooks of agents, uploads,
submissions, git sources, watched directories."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from config.server_settings import BrokerAddress
from config.settings_group import SettingsGroup, is_http_address

EVERYONE = "everyone"
"""The group of all readers, those without a token included."""

ALL_GROUPS = "*"
"""Value that stands for all groups: the reader sees everything."""

GROUP_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,99}"
"""Regular expression of valid group names."""


class GatewaySettings(SettingsGroup):
    """The HTTP gateway on a port: permitted callers, and limits on requests and connections."""

    tokens_file: Path | None = Field(
        None,
        description="file of `skillbus tokens`; unset: `tokens.json` in the home",
    )
    hosts: tuple[str, ...] = Field(
        (), description="host names accepted in requests, in addition to those of loopback"
    )
    origins: tuple[str, ...] = Field(
        (), description="origins of web pages that may call it, as `https://host`"
    )
    proxies: tuple[str, ...] = Field(
        (), description="addresses or networks of proxies whose `X-Forwarded-For` is trusted"
    )
    roots: tuple[Path, ...] = Field(
        (), description="directories below which a token may add sources"
    )
    head_seconds: float = Field(
        10.0, gt=0, description="time limit for receiving the headers of a request"
    )
    body_bytes: int = Field(
        2_000_000, ge=1_000, description="maximum size of a body, except for uploads"
    )
    body_seconds: float = Field(10.0, gt=0, description="time limit for receiving a body")
    send_seconds: float = Field(
        30.0, gt=0, description="time limit for a client to read the next 64 KiB of a response"
    )
    requests_a_minute: float = Field(
        1_200.0, gt=0, description="sustained rate of requests per token"
    )
    burst: int = Field(200, ge=1, description="requests per token allowed in a burst")
    deliveries_a_minute: float = Field(
        600.0,
        gt=0,
        description="sustained rate of refused webhook deliveries per address and host",
    )
    delivery_burst: int = Field(
        1_000, ge=1, description="refused deliveries allowed at once, including those in progress"
    )
    wait_seconds: float = Field(
        30.0, gt=0, le=600, description="maximum wait that `Prefer: wait` can request"
    )
    connections: int = Field(
        1_000, ge=1, description="open connections; further ones get status 503"
    )
    streams: int = Field(200, ge=1, description="open event streams")
    console: bool = Field(True, description="whether the web console is served at `/console`")
    console_key_file: Path | None = Field(
        None,
        description="file with the key of the console's session cookies, 32 bytes as URL-safe "
        "base64; gateways behind one name need the same key; unset: `console.key` next to the "
        "token file, created on first use",
    )

    @field_validator("origins")
    @classmethod
    def _normalise_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(origin.lower().rstrip("/") for origin in origins)  # as browsers send them

    @field_validator("proxies")
    @classmethod
    def _check_proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)
        return proxies


class AccessSettings(SettingsGroup):
    """Groups that control which skills a reader sees. Every process of a deployment needs the same
    values.
    """

    default_groups: tuple[str, ...] = Field(
        (EVERYONE,),
        description="groups of the sources that have none of their own; empty: only admins and "
        "the user of the machine see these sources",
    )
    message_groups: tuple[str, ...] = Field(
        (ALL_GROUPS,),
        description="groups that queries from a queue read with; `*`: they see all skills",
    )

    @field_validator("default_groups", "message_groups")
    @classmethod
    def _check_groups(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        is_all = names == (ALL_GROUPS,) and info.field_name == "message_groups"
        for name in names:
            if not is_all and not re.fullmatch(GROUP_PATTERN, name):
                raise ValueError(f"{name[:100]!r} is not a group name")
        return names


class OidcSettings(SettingsGroup):
    """Bearer tokens of an OpenID Connect issuer, in addition to those of `skillbus tokens`.

    Values of a claim grant scopes. A token whose values grant none is refused.
    """

    issuer: str = Field(
        "", description="the issuer, exactly as its tokens name it; empty: no such tokens"
    )
    audience: str = Field("", description="value that `aud` of a token must contain")
    jwks: str = Field(
        "",
        description="file or address of the issuer's keys, a JSON Web Key Set; empty: the "
        "`jwks_uri` of its discovery document",
    )
    groups_claim: str = Field(
        "groups",
        min_length=1,
        description="claim whose values grant scopes and are the groups that a token reads with: a "
        "list, or words separated by spaces; dots name a nested claim, such as "
        "`realm_access.roles`",
    )
    scopes: dict[str, Literal["read", "write", "admin"]] = Field(
        {}, description="by value of the claim: the scope that it grants"
    )
    sources: dict[str, tuple[str, ...]] = Field(
        {},
        description="by value of the claim that grants `write`: the sources that may be changed "
        "with it; values that are not listed here: any",
    )
    cache_seconds: float = Field(
        3_600.0, ge=1, description="how long keys are used before they are fetched again"
    )
    timeout_seconds: float = Field(5.0, gt=0, le=60, description="time limit for fetching keys")

    @field_validator("issuer", "jwks")
    @classmethod
    def _check_address(cls, address: str) -> str:
        if "://" in address and not is_safe_address(address):
            raise ValueError("must be https, or http on a loopback address")
        return address

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.issuer:
            return self
        if "://" not in self.issuer:
            raise ValueError("issuer must be an address, https://…")
        if not self.audience or not self.scopes:
            raise ValueError("an issuer needs `audience` and `scopes`")
        for value in self.sources:
            if self.scopes.get(value) != "write":
                raise ValueError(f"sources: {value!r} must grant `write` in `scopes`")
        return self


def is_safe_address(address: str) -> bool:
    """Return whether keys may be fetched from an address: https, or http on a loopback address."""
    if not is_http_address(address):
        return False
    parts = urlsplit(address)
    host = parts.hostname or ""
    return parts.scheme == "https" or host == "localhost" or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AuditSettings(SettingsGroup):
    """The audit log: one record for each command and request that changes something. If it cannot
    be written, nothing is changed.
    """

    enabled: bool = Field(True, description="whether records are written")
    file: Path | None = Field(
        None, description="file of the newest records; unset: `audit/audit.jsonl` in the home"
    )
    megabytes: float = Field(
        10.0,
        ge=0.001,
        description="size at which the file is rotated; the previous file ends in `.1`",
    )
    files: int = Field(10, ge=1, le=1_000, description="number of files that are kept")


class WebhookSettings(SettingsGroup):
    """Webhook deliveries of repository hosts about pushes.

    Deliveries of a host are accepted once a secret file is set for it or for a source. A file has
    one line, the secret, and is read at each delivery. To change a secret without a gap, set the
    files of both secrets for a while.
    """

    github: tuple[Path, ...] = Field((), description="files with secrets of GitHub webhooks")
    gitlab: tuple[Path, ...] = Field(
        (), description="files with secret or signing tokens (`whsec_…`) of GitLab webhooks"
    )
    gitea: tuple[Path, ...] = Field((), description="files with secrets of Gitea or Forgejo")
    sources: dict[str, tuple[Path, ...]] = Field(
        {}, description="by source: files with secrets for this source only"
    )
    repositories: tuple[str, ...] = Field(
        (), description="addresses of the accepted repositories; empty: those of all git sources"
    )
    body_bytes: int = Field(
        5_000_000,
        ge=1_000,
        le=100_000_000,
        description="maximum size of a delivery (GitHub's limit is 25 MB)",
    )
    body_seconds: float = Field(10.0, gt=0, description="time limit for receiving a delivery")
    open_bodies: int = Field(32, ge=1, description="deliveries received at the same time")
    age_seconds: float = Field(
        300.0,
        gt=0,
        description="maximum difference between a signature's time and this machine's clock",
    )


class HookSettings(SettingsGroup):
    """`skillbus hook`, which coding agents run at each prompt. `hook install` writes these settings
    into the command that the agent runs: install again after a change.
    """

    timeout_ms: int = Field(
        150,
        ge=30,
        le=10_000,
        description="time limit in milliseconds, from the start of the program; nothing is added "
        "to the prompt after it",
    )
    budget: int = Field(
        1_500,
        ge=200,
        le=20_000,
        description="maximum tokens added to a prompt; agents write more than 10,000 characters to "
        "a file and show only its start",
    )
    top: int = Field(3, ge=1, le=100, description="maximum number of skills added to a prompt")
    least_probability: float = Field(
        0.6,
        ge=0,
        le=1,
        description="minimum probability that one of the skills is right; below it nothing is "
        "added",
    )
    url: str = Field(
        "",
        pattern=r"^(https?://[^\s/]+(/\S*)?)?$",
        description="address of a gateway; empty: `skillbus serve` of the home",
    )
    token_file: str = Field("", description="file with the access token for that gateway")


class UploadSettings(SettingsGroup):
    """Uploaded skills, over HTTP or by `skillbus upload`. An archive that exceeds a limit is
    refused."""

    folder: Path | None = Field(
        None,
        description="folder of uploads; unset: `uploads` in the home; gateways and workers of a "
        "distributed deployment share it",
    )
    megabytes: float = Field(32.0, gt=0, le=4_000, description="maximum size of an upload as sent")
    unpacked_megabytes: float = Field(
        200.0, gt=0, le=40_000, description="maximum size of an upload after unpacking"
    )
    ratio: float = Field(
        100.0,
        ge=2,
        description="maximum ratio of unpacked to sent bytes, from the first megabyte on",
    )
    files: int = Field(
        5_000, ge=1, le=200_000, description="maximum number of members of an archive"
    )
    skills: int = Field(500, ge=1, le=20_000, description="maximum number of skills of an upload")
    depth: int = Field(16, ge=1, le=64, description="maximum nesting of folders in an archive")
    seconds: float = Field(
        60.0, gt=0, description="time limit for receiving an upload, and for unpacking it"
    )
    at_once: int = Field(
        4, ge=1, le=64, description="uploads that a gateway receives at the same time"
    )


class SubmissionSettings(SettingsGroup):
    """Events and queries that other programs submit through a message broker: the queue
    `skillbus.events` of RabbitMQ, or the stream of that name of Redis.

    The address is a URL without a password, `redis://host:port/db` or `amqp://user@host:port/vhost`.
    """

    broker: BrokerAddress = Field(
        "", description="address of the broker; empty: `servers.broker` if set, else no submissions"
    )
    broker_password_file: Path | None = Field(None, description="file with its password")
    message_bytes: int = Field(10_000_000, ge=1_000, description="maximum size of a message")
    prefetch: int = Field(16, ge=1, le=1_000, description="unacknowledged messages per consumer")
    claim_seconds: float = Field(
        30.0, gt=0, description="time after which a dead consumer's message is claimed (Redis only)"
    )
    reply_seconds: float = Field(3_600.0, gt=0, description="how long a reply can be fetched")
    replies: int = Field(
        1_000, ge=1, description="approximate number of replies that a stream of Redis keeps"
    )
    settle_seconds: float = Field(
        600.0,
        gt=0,
        description="time after which a reply reports a skill that is still pending as failed",
    )
    roots: tuple[Path, ...] = Field(
        (), description="directories below which messages may add new sources"
    )


class GitSettings(SettingsGroup):
    """Git sources: allowed addresses, credentials, and limits on fetches."""

    protocols: tuple[str, ...] = Field(
        ("https",), description="protocols of the addresses: `https`, `http`"
    )
    allow_private: bool = Field(
        False, description="allow loopback, private and link-local addresses too"
    )
    allow_local: bool = Field(False, description="allow `file://` and `git://` addresses too")
    credentials: Path | None = Field(
        None, description="folder of credential files; unset: `credentials` in the home"
    )
    mirrors: Path | None = Field(
        None, description="folder of the mirrors of fetched repositories; unset: `git` in the home"
    )
    at_once: int = Field(
        4, ge=1, le=64, description="maximum number of hosts fetched from at the same time"
    )
    megabytes: int = Field(
        500, ge=1, description="maximum megabytes of a transfer, and of a mirror"
    )
    files: int = Field(200_000, ge=1, description="maximum number of files and folders of a commit")
    seconds: float = Field(120.0, gt=0, le=480, description="time limit of a fetch")
    poll_seconds: float = Field(
        300.0, ge=1, description="interval of fetches, unless the source sets its own"
    )

    @field_validator("protocols")
    @classmethod
    def _check_protocols(cls, protocols: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(protocols) - {"https", "http"})
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: allowed are https and http")
        return protocols


class WatchSettings(SettingsGroup):
    """Watching directories for changes."""

    settle_milliseconds: int = Field(
        150, ge=0, description="time without further changes before a change is submitted"
    )
    poll_seconds: float = Field(
        5.0, gt=0, description="polling interval where file notification does not work"
    )
    force_polling: bool = False
    rescan_seconds: float = Field(
        600.0, gt=0, description="interval of full scans, for changes without a notification"
    )
