"""Settings of the choice of passages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from config.settings_group import SettingsGroup


class PassageSettings(SettingsGroup):
    """Which passages of a chosen skill are sent."""

    method: Literal["f", "mmr", "full"] = "f"
    miss: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of needed passages that may be missed in method `f` where a budget is "
        "short; 0: nothing less than the whole skill is enough",
    )
    milliseconds: int = Field(
        100,
        ge=0,
        description="time limit for embedding sections, or passages for `mmr`, without vectors",
    )
    mmr_lambda: float = Field(
        0.7, ge=0, le=1, description="weight of relevance against redundancy in `mmr`"
    )
    mmr_passages: int = Field(20, ge=1, description="most passages of a skill in `mmr`")
    mmr_passages_long: int = Field(
        60, ge=1, description="the same for a skill of more than 100 passages"
    )
