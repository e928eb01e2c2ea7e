"""Requests to skillbus: changes of sources and skills, queries, and outcomes."""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from skills.bundle.budget_form import BudgetForm
from skills.bundle.rejection import RejectionReason
from skills.events.ids import (
    MAX_PATH_CHARACTERS,
    FilePath,
    RelativePath,
    SessionId,
    SkillId,
    SourceId,
    check_id_bytes,
)
from skills.outcomes.model import OutcomeKind, Reporter, TaskResult
from skills.record import get_source_id

SOURCE_CHANGED = "skillbus.source.changed.v1"
SOURCE_REMOVED = "skillbus.source.removed.v1"
SKILL_UPSERTED = "skillbus.skill.upserted.v1"
SKILL_REMOVED = "skillbus.skill.removed.v1"
QUERY_ASKED = "skillbus.query.asked.v1"
OUTCOME_REPORTED = "skillbus.outcome.reported.v1"

MAX_EVENT_FILES = 1_000
"""Maximum files of a skill that is sent in an event."""

MAX_QUERY_PINS = 100
"""Maximum skills that a query pins to a revision."""

MAX_EXPLAINED_SKILLS = 10
"""Maximum skills in `explain_skills` of a query."""

MAX_OUTCOMES = 200
"""Maximum outcomes in an event."""

MAX_EVENT_FILE_BYTES = 8 << 20
"""Maximum total size in bytes, as UTF-8, of the files of a skill that is sent in an event."""

MAX_BUDGET = 10_000_000
"""Maximum tokens that a query may ask for."""

_SKILL_FILE = "SKILL.md"


def _require_number(value: object) -> object:
    """Return numbers of JSON; booleans and digits in quotes raise ValueError."""
    if isinstance(value, bool | str | bytes):
        raise ValueError("must be a number")
    return value


def _is_markdown(form: BudgetForm) -> bool:
    return form is BudgetForm.MARKDOWN


def _is_null(value: object) -> bool:
    return value is None


_FilterValues = Annotated[tuple[str, ...], Field(max_length=100)]
_NUMBER = BeforeValidator(_require_number)


class GitFetchOptions(BaseModel):
    """Content to fetch from a git repository, and the interval.

    `branch`: empty for the remote's default branch. `path`: folder with the skills, empty for the
    whole repository. `licences`: allowed licences, empty for any. `credential_file`: a file in the
    folder of credentials. `poll_seconds`: interval of fetches, 0 for that of the settings.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    branch: str = Field(default="", max_length=255, pattern=r"^[^\x00]*$")
    path: RelativePath = ""
    licences: tuple[str, ...] = ()
    credential_file: RelativePath = ""
    poll_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class GitPush(BaseModel):
    """The commits of a branch before a push (empty for a new branch) and after it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    before: str = Field(default="", pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")
    after: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")


class SourceChanged(BaseModel):
    """Files of a source may have changed: those in `paths`, or any if it is empty.

    `paths` are relative to the root, with `/`: files or folders that were added, changed or
    removed. A known source needs no `root`. With `git`, `root` is the address of a repository,
    which becomes a source or gets these fetch options. `pushed`: a push that the repository's host
    has reported but may not serve yet.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    source_id: SourceId
    root: str = Field(default="", max_length=MAX_PATH_CHARACTERS, pattern=r"^[^\x00]*$")
    paths: tuple[RelativePath, ...] = ()
    git: GitFetchOptions | None = Field(default=None, exclude_if=_is_null)
    pushed: GitPush | None = Field(default=None, exclude_if=_is_null)


class SourceRemoved(BaseModel):
    """A source and all its skills are to be removed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    source_id: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")


class SkillUpserted(BaseModel):
    """A skill was added or changed: it is read again from its source, or from `files`.

    `files` are path -> text, with paths relative to the skill's folder: its SKILL.md and at most
    999 other files, 8 MiB of UTF-8 together. They replace all previous files.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    skill_id: SkillId
    files: dict[FilePath, str] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_EVENT_FILES,
        exclude_if=_is_null,
    )

    @model_validator(mode="after")
    def _is_one_skill(self) -> SkillUpserted:
        if self.files is not None:
            _check_files(self.files)
        return self


def _check_files(files: dict[str, str]) -> None:
    if _SKILL_FILE not in files:
        raise ValueError(f"files must hold {_SKILL_FILE}")
    size = sum(len(path.encode()) + len(text.encode()) for path, text in files.items())
    if size > MAX_EVENT_FILE_BYTES:
        raise ValueError(f"files have {size} bytes; an event holds at most {MAX_EVENT_FILE_BYTES}")
    for path in files:
        folder, _, name = path.rpartition("/")
        if name == _SKILL_FILE and folder:
            raise ValueError(f"{path} would be another skill; send it in another event")
        while folder:
            if folder in files:
                raise ValueError(f"{folder} cannot be a file and hold {path}")
            folder = folder.rpartition("/")[0]


class SkillRemoved(BaseModel):
    """A skill is to be removed until its folder changes again."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    skill_id: Annotated[str, AfterValidator(check_id_bytes)] = Field(
        min_length=3, max_length=MAX_PATH_CHARACTERS, pattern=r"^[^\x00]*$"
    )


class QueryFilters(BaseModel):
    """Allowed values by field; every skill of the bundle has one of the values of each field."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: _FilterValues = ()
    licence: _FilterValues = ()
    language: _FilterValues = ()
    tool: _FilterValues = ()


class QueryAsked(BaseModel):
    """A query: a task in words, with limits of the answer.

    `without` switches stages off. `budget` is in tokens, `top` in skills; null for the setting.
    `budget_form`: the text that the budget counts, the Markdown form or the result of the MCP tool.
    `session`: an id of the caller's choice; text that was sent in the session is not sent again,
    unless `resend` says that the caller lost it. `obstacle`: the problem met in the session's task.
    With an obstacle or with `resend`, `task` may be empty: the session's last task is used.
    `brief`: skills are only introduced; further queries of the session get more of them as needed.
    `pins`: seqs by skill id; if such a skill is chosen, this revision is sent in place of the
    published one. `explain_skills`: the explanation also names the stage in which each of these
    skills was dropped, and the reason. `least_probability`: if the probability that a skill of the
    bundle is right is below it, the answer is NO_SKILL_HIT. `record_use`: false to look at an
    answer without using it: it is not counted as usage, and nothing counts as sent in the session.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str = ""
    budget: Annotated[int, Field(ge=1, le=MAX_BUDGET), _NUMBER] | None = None
    budget_form: BudgetForm = Field(default=BudgetForm.MARKDOWN, exclude_if=_is_markdown)
    top: Annotated[int, Field(ge=1, le=100), _NUMBER] | None = None
    filters: QueryFilters = QueryFilters()
    without: tuple[str, ...] = ()
    explain: bool = Field(default=False, strict=True)
    explain_skills: Annotated[tuple[SkillId, ...], Field(max_length=MAX_EXPLAINED_SKILLS)] = Field(
        default=(), exclude_if=not_
    )
    session: SessionId = Field(default="", exclude_if=not_)
    resend: bool = Field(default=False, strict=True, exclude_if=not_)
    obstacle: str = Field(default="", exclude_if=not_)
    brief: bool = Field(default=False, strict=True, exclude_if=not_)
    pins: dict[SkillId, Annotated[int, Field(ge=1, le=2**63 - 1), _NUMBER]] = Field(
        default={}, max_length=MAX_QUERY_PINS, exclude_if=not_
    )
    least_probability: Annotated[float, Field(ge=0, le=1), _NUMBER] | None = Field(
        default=None, exclude_if=_is_null
    )
    record_use: bool = Field(default=True, strict=True, exclude_if=bool)

    @model_validator(mode="after")
    def _is_of_a_session(self) -> QueryAsked:
        for name in ("resend", "obstacle", "brief"):
            if getattr(self, name) and not self.session:
                raise ValueError(f"`{name}` refers to a session; name it in `session`")
        return self


class SkillOutcome(BaseModel):
    """The outcome of one skill in a task.

    `skill_id` is empty only for `missing`. `reason` is only for `rejected`. `other_skill_id`: for
    `superseded`, the skill that was used instead; for a rejection as `redundant` or `incompatible`,
    the skill that makes it so. Neither skill needs to be in the bundle.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: SkillId | Literal[""] = ""
    outcome: OutcomeKind
    reason: RejectionReason | Literal[""] = Field(
        "", description="; ".join(f"`{one}`: {one.meaning}" for one in RejectionReason)
    )
    other_skill_id: SkillId | Literal[""] = ""
    by: Reporter = Reporter.AGENT

    @model_validator(mode="after")
    def _is_consistent(self) -> SkillOutcome:
        kind = self.outcome
        if (kind is OutcomeKind.MISSING) == bool(self.skill_id):
            raise ValueError("a skill is required, except for `missing`, which takes none")
        if (kind is OutcomeKind.REJECTED) != bool(self.reason):
            raise ValueError("`rejected` needs a reason; no other outcome takes one")
        if kind is OutcomeKind.SUPERSEDED and not self.other_skill_id:
            raise ValueError("`superseded` needs the other skill, which was used instead")
        if self.other_skill_id:
            if kind is not OutcomeKind.SUPERSEDED and self.reason not in _COMPARING_REASONS:
                reasons = " and ".join(_COMPARING_REASONS)
                raise ValueError(f"another skill is for `superseded`, {reasons} alone")
            if self.other_skill_id == self.skill_id:
                raise ValueError("the other skill is the skill itself")
        return self


_COMPARING_REASONS = (RejectionReason.REDUNDANT, RejectionReason.INCOMPATIBLE)


class OutcomesReported(BaseModel):
    """Outcomes of the skills of an answered query, and of other skills that were used for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query_id: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
    outcomes: tuple[SkillOutcome, ...] = Field(min_length=1, max_length=MAX_OUTCOMES)
    task_result: TaskResult | Literal[""] = ""


Request = (
    SourceChanged | SourceRemoved | SkillUpserted | SkillRemoved | QueryAsked | OutcomesReported
)


def get_changed_source(data: object) -> str:
    """Return the source that an event changes, "" for data of other events."""
    if isinstance(data, SourceChanged | SourceRemoved):
        return data.source_id
    if isinstance(data, SkillUpserted | SkillRemoved):
        return get_source_id(data.skill_id)
    return ""


REQUESTS: dict[str, type[Request]] = {
    SOURCE_CHANGED: SourceChanged,
    SOURCE_REMOVED: SourceRemoved,
    SKILL_UPSERTED: SkillUpserted,
    SKILL_REMOVED: SkillRemoved,
    QUERY_ASKED: QueryAsked,
    OUTCOME_REPORTED: OutcomesReported,
}
"""Event type of a request -> model of its data."""
