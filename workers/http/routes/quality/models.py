"""JSON of evaluations and labelled prompts."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class QualityModel(BaseModel):
    """Base class of the responses."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class MeasureData(QualityModel):
    """A mean over prompts with its 95% interval."""

    mean: float
    low: float
    high: float


class EvaluationData(QualityModel):
    """A kept run of `skillbus eval`.

    kind: `routing`, `bundles` or `outcomes`. name: of the file with the tasks. made: seconds since
    the epoch. version: of skillbus. skills: number of published ones. without: stages that were
    switched off. settings: those of ranking and choice that differ from the defaults.
    """

    evaluation_id: str
    kind: str
    name: str
    made: float
    version: str
    skills: int
    tasks: int
    without: tuple[str, ...]
    settings: dict[str, Any]
    measures: dict[str, MeasureData]


class EvaluationList(QualityModel):
    """Kept runs, the newest first."""

    evaluations: list[EvaluationData]


class PromptData(QualityModel):
    """A prompt with what was found for it.

    needed: skills that are right. found: the first ten ids. ranks: of each needed skill, 0 where it
    was not found. probability: that the first one is right.
    """

    prompt_id: str
    task: str
    needed: tuple[str, ...]
    found: tuple[str, ...]
    ranks: tuple[int, ...]
    values: dict[str, float]
    probability: float | None


class ReliabilityPointData(QualityModel):
    """Prompts of alike probability: their mean, the share whose first skill is right, its 95%
    interval, and their number."""

    predicted: float
    observed: float
    low: float
    high: float
    prompts: int


class ReliabilityData(QualityModel):
    """How often the first skill is right, by its probability. error: expected calibration error."""

    error: float
    prompts: int
    points: tuple[ReliabilityPointData, ...]


class RecallPoint(QualityModel):
    """Mean share of the needed skills at this rank or before."""

    rank: int
    recall: float


class EvaluationDetails(EvaluationData):
    """A kept run with its curves and a page of its prompts, worst first.

    reliability: null where no probability is known. hidden: prompts on all pages that others
    labelled, which admins see. next: path of the next page, null on the last one.
    """

    reliability: ReliabilityData | None
    recall: list[RecallPoint]
    prompts: list[PromptData]
    prompt_count: int
    hidden: int
    next: str | None


class MeasureChangeData(QualityModel):
    """A measure over the prompts that both runs have. change: after less before, paired by prompt,
    with its 95% bootstrap interval. is_significant: whether that does not hold 0."""

    name: str
    before: float
    after: float
    change: MeasureData
    is_significant: bool


class PromptChangeData(QualityModel):
    """A prompt whose needed skills rank otherwise. before, after: ranks of `needed`, 0 where not
    found. gain: change of its discounted cumulative gain. first_before, first_after: what ranked
    first."""

    prompt_id: str
    task: str
    needed: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: float
    first_before: str
    first_after: str


class SettingChange(QualityModel):
    """What the runs were made with, where it differs; null: the default."""

    name: str
    before: Any = None
    after: Any = None


class EvaluationChanges(QualityModel):
    """What differs between two runs.

    paired: prompts of one text and the same needed skills in both; unpaired: others of either.
    better, worse: the largest difference first, at most 200 each; better_count, worse_count: all.
    """

    before: EvaluationData
    after: EvaluationData
    paired: int
    unpaired: int
    measures: list[MeasureChangeData]
    better: list[PromptChangeData]
    worse: list[PromptChangeData]
    better_count: int
    worse_count: int
    settings: list[SettingChange]


class LabelledPromptData(QualityModel):
    """A task of which a person said which skills are right.

    right, wrong: skills. missing: the person said that the library has no right one. owner: of the
    query. labelled: time of the newest report, in seconds since the epoch.
    """

    query_id: str
    task: str
    owner: str
    labelled: float
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    missing: bool


class LabelledPromptList(QualityModel):
    """Labelled prompts, the newest first. total: on all pages. next: path of the next page."""

    prompts: list[LabelledPromptData]
    total: int
    next: str | None


class PageQuery(BaseModel):
    """A page. Other parameters are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int = Field(50, ge=1, le=500)
    cursor: str = Field("", description="from `next` of the previous page")
