"""Settings of the ways in: HTTP, webhooks, uploads, queues of other programs, and repositories."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import Field, field_validator

from config.settings_group import SettingsGroup


class GatewaySettings(SettingsGroup):
    """The HTTP gateway on a port: who is heard there, and how much of everybody."""

    tokens_file: Path | None = Field(
        None, description="where `skillbus tokens` keeps them; unset: `tokens.json` in the home"
    )
    hosts: tuple[str, ...] = Field(
        (), description="names that requests may call this gateway by, beside loopback's"
    )
    origins: tuple[str, ...] = Field(
        (), description="web pages that may call it, as `https://host`; none: none"
    )
    proxies: tuple[str, ...] = Field(
        (), description="addresses or networks whose `X-Forwarded-For` says who calls; none: none"
    )
    roots: tuple[Path, ...] = Field(
        (), description="directories below which a token may name sources that are not known yet"
    )
    head_seconds: float = Field(
        10.0, gt=0, description="time in which the head of a request has to arrive"
    )
    body_bytes: int = Field(2_000_000, ge=1_000, description="largest body, uploads aside")
    body_seconds: float = Field(10.0, gt=0, description="time in which one has to arrive")
    send_seconds: float = Field(
        30.0, gt=0, description="time in which a client has to take the next 64 KiB of its answer"
    )
    requests_a_minute: float = Field(1_200.0, gt=0, description="of one token, over time")
    burst: int = Field(200, ge=1, description="requests of one token at once")
    deliveries_a_minute: float = Field(
        600.0,
        gt=0,
        description="webhook deliveries of one address for one host that are not taken in",
    )
    delivery_burst: int = Field(
        1_000, ge=1, description="of these at once, with those that are being looked at"
    )
    wait_seconds: float = Field(30.0, gt=0, le=600, description="longest `Prefer: wait`")
    connections: int = Field(1_000, ge=1, description="at once; more are told to come back")
    streams: int = Field(200, ge=1, description="event streams that are open at once")

    @field_validator("proxies")
    @classmethod
    def _check_proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)
        return proxies


class WebhookSettings(SettingsGroup):
    """Deliveries of repository hosts about pushes. A host is heard once a secret file is named for
    it, or for one of the sources; a file holds one secret in its only line and is read anew at each
    delivery. While a secret is being changed, name the files of both.
    """

    github: tuple[Path, ...] = Field((), description="files with secrets of GitHub's webhooks")
    gitlab: tuple[Path, ...] = Field(
        (), description="files with secret tokens or signing tokens (`whsec_…`) of GitLab's"
    )
    gitea: tuple[Path, ...] = Field((), description="files with secrets of Gitea's and Forgejo's")
    sources: dict[str, tuple[Path, ...]] = Field(
        {}, description="by source: files with secrets that count for this source alone"
    )
    repositories: tuple[str, ...] = Field(
        (), description="addresses of the only repositories that are heard; none: all git sources'"
    )
    body_bytes: int = Field(
        5_000_000, ge=1_000, le=100_000_000, description="largest delivery (GitHub's end at 25 MB)"
    )
    body_seconds: float = Field(10.0, gt=0, description="time in which one has to arrive")
    open_bodies: int = Field(32, ge=1, description="deliveries that are taken in at once")
    age_seconds: float = Field(
        300.0, gt=0, description="how far the time in a signature may be from this machine's clock"
    )


class UploadSettings(SettingsGroup):
    """Skills that come by value, over HTTP or by `skillbus upload`. Archives are refused as soon as
    one of these bounds is passed."""

    folder: Path | None = Field(
        None,
        description="where they are kept; unset: `uploads` in the home; gateways and workers of a "
        "distributed deployment share it",
    )
    megabytes: float = Field(32.0, gt=0, le=4_000, description="of one upload, as sent")
    unpacked_megabytes: float = Field(200.0, gt=0, le=40_000, description="of one upload, unpacked")
    ratio: float = Field(
        100.0, ge=2, description="unpacked bytes for one that is sent, from the first megabyte on"
    )
    files: int = Field(5_000, ge=1, le=200_000, description="members of one archive")
    skills: int = Field(500, ge=1, le=20_000, description="skills of one upload")
    depth: int = Field(16, ge=1, le=64, description="folders above a file of an archive")
    seconds: float = Field(60.0, gt=0, description="to receive an upload, and to unpack it")
    at_once: int = Field(4, ge=1, le=64, description="uploads that one gateway takes in at a time")


class SubmissionSettings(SettingsGroup):
    """Events and queries that come through a queue which any program can write to: the queue
    `skillbus.events` of RabbitMQ, or the stream of that name of Redis.

    The address is a URL without a password, `redis://host:port/db` or `amqp://user@host:port/vhost`;
    the password stands alone in the file that a setting names.
    """

    broker: str = Field(
        "", description="where they come from; empty: nowhere, or `servers.broker` on servers"
    )
    broker_password_file: Path | None = Field(None, description="its only line")
    message_bytes: int = Field(10_000_000, ge=1_000, description="largest message")
    prefetch: int = Field(16, ge=1, le=1_000, description="messages that a consumer holds at once")
    claim_seconds: float = Field(
        30.0, gt=0, description="until a message of a consumer that died is another's, on Redis"
    )
    reply_seconds: float = Field(3_600.0, gt=0, description="how long a reply can be fetched")
    replies: int = Field(1_000, ge=1, description="replies that a stream of Redis keeps, about")
    settle_seconds: float = Field(
        600.0, gt=0, description="patience with skills, until a sender is told that they still wait"
    )
    roots: tuple[Path, ...] = Field(
        (), description="directories below which messages may name sources that are not known yet"
    )


class GitSettings(SettingsGroup):
    """Git sources: from where they may come, and how much and how long is fetched at most."""

    protocols: tuple[str, ...] = Field(
        ("https",), description="of the addresses that are fetched from: `https`, `http`"
    )
    allow_private: bool = Field(
        False, description="fetch from loopback, private and link-local addresses too"
    )
    allow_local: bool = Field(False, description="allow `file://` and `git://` addresses too")
    credentials: Path | None = Field(
        None, description="folder of credential files; empty: `credentials` in the home"
    )
    mirrors: Path | None = Field(
        None, description="folder of what was fetched; empty: `git` in the home"
    )
    at_once: int = Field(4, ge=1, le=64, description="hosts that are fetched from at the same time")
    megabytes: int = Field(500, ge=1, description="largest transfer, and largest mirror")
    files: int = Field(200_000, ge=1, description="files and folders of one commit")
    seconds: float = Field(120.0, gt=0, le=480, description="time for one fetch")
    poll_seconds: float = Field(
        300.0, ge=1, description="how often a source is fetched, unless the source says"
    )

    @field_validator("protocols")
    @classmethod
    def _check_protocols(cls, protocols: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(protocols) - {"https", "http"})
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: only https and http are known")
        return protocols
