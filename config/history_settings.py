"""Settings of the history of skills."""

from __future__ import annotations

from pydantic import Field

from config.settings_group import SettingsGroup


class HistorySettings(SettingsGroup):
    """Earlier revisions of skills, kept to be listed, compared and read (`skillbus skills
    history`). Queries never read them. A limit applies to a skill when it changes next.
    """

    revisions: int = Field(
        5,
        ge=0,
        le=100,
        description="superseded revisions kept of each skill, the newest; 0: none",
    )
    bytes: int = Field(
        2_000_000,
        ge=1_000,
        description="most bytes kept of a skill, compressed; the newest superseded revision is "
        "kept whatever its size",
    )
