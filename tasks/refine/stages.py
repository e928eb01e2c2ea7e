"""The stages of refinement, in the order in which a skill passes them."""

from __future__ import annotations

from config.language_model_settings import LanguageModelSettings
from tasks.refine.judge import JudgeStage
from tasks.refine.links import LinkStage
from tasks.refine.prompts import PromptStage
from tasks.refine.record import RecordStage
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
    """The stages that the settings switch on."""
    return [stage for stage in STAGES if settings.uses(stage.name)]
