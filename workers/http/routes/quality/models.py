"""JSON of evaluations and labelled prompts."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from workers.http.cursors import PageQuery
from workers.http.models import ResponseModel


class QualityModel(ResponseModel):
    """Base class of the responses."""

    model_config = ConfigDict(from_attributes=True)


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
    """Kept runs, newest first."""

    evaluations: list[EvaluationData]


class PromptData(QualityModel):
    """A prompt with the skills found for it.

    needed: skills that are right. found: the first ten ids. ranks: of each needed skill, 0 if it
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
    """Prompts of similar probability: their mean probability, the share whose first skill is right,
    its 95% interval, and their number."""

    predicted: float
    observed: float
    low: float
    high: float
    prompts: int


class ReliabilityData(QualityModel):
    """Share of right first skills by probability. error: expected calibration error."""

    error: float
    prompts: int
    points: tuple[ReliabilityPointData, ...]


class RecallPoint(QualityModel):
    """Mean share of the needed skills at this rank or before."""

    rank: int
    recall: float


class EvaluationDetails(EvaluationData):
    """A kept run with its curves and a page of its prompts, worst first.

    reliability: null if no probability is known. hidden: number of prompts on all pages that other
    callers labelled and only admins see. next: path of the next page, null on the last one.
    """

    reliability: ReliabilityData | None
    recall: list[RecallPoint]
    prompts: list[PromptData]
    prompt_count: int
    hidden: int
    next: str | None


class MeasureChangeData(QualityModel):
    """A measure over the prompts that both runs have. change: after minus before, paired by prompt,
    with its 95% bootstrap interval. is_significant: whether the interval excludes 0."""

    name: str
    before: float
    after: float
    change: MeasureData
    is_significant: bool


class PromptChangeData(QualityModel):
    """A prompt whose needed skills have other ranks. before, after: ranks of `needed`, 0
    if not found. gain: change of its discounted cumulative gain. first_before,
    first_after: the first skills."""

    prompt_id: str
    task: str
    needed: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: float
    first_before: str
    first_after: str


class SettingChange(QualityModel):
    """A setting, version or size that differs between the runs; null: the default."""

    name: str
    before: Any = None
    after: Any = None


class EvaluationChanges(QualityModel):
    """Differences between two runs.

    paired: number of prompts with the same text and needed skills in both; unpaired: number
    of the others. better, worse: the largest difference first, at most 200 each;
    better_count, worse_count: all.
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
    """A task for which a person reported the right skills.

    right, wrong: ids of skills. missing: whether the person reported that the library has no right
    skill. owner: of the query. labelled: time of the newest report, in seconds since the epoch.
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


class QualityPage(PageQuery):
    """A page. Other parameters are rejected."""

    limit: int = Field(50, ge=1, le=500)
