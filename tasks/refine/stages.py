"""The stages of refinement, in the order in which a skill passes them."""

from __future__ import annotations

from config.language_model_settings import LanguageModelSettings
from tasks.refine.completion.prompt_stage import PromptStage
from tasks.refine.completion.record_stage import RecordStage
from tasks.refine.judging.judge_stage import JudgeStage
from tasks.refine.linking.link_stage import LinkStage
from tasks.refine.roles.role_stage import RoleStage
from tasks.refine.stage import RefineStage

STAGES: tuple[RefineStage, ...] = (
    RoleStage(),
    RecordStage(),
    LinkStage(),
    PromptStage(),
    JudgeStage(),
)


def list_enabled_stages(settings: LanguageModelSettings) -> list[RefineStage]:
    """Return the stages that the settings switch on."""
    return [stage for stage in STAGES if settings.uses(stage.name)]
