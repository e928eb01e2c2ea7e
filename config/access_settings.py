"""Settings of who may see which skills, and the names of groups."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from config.settings_group import SettingsGroup

EVERYONE = "everyone"
"""The group of all readers, those without a token included."""

GROUP_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,99}"

GroupName = Annotated[str, Field(max_length=100, pattern=f"^{GROUP_PATTERN}$")]


class AccessSettings(SettingsGroup):
    """Who may see the skills of which sources. Every process of a deployment needs the same."""

    default_groups: tuple[GroupName, ...] = Field(
        (EVERYONE,),
        description="groups of the sources that have none of their own; empty: only admins and "
        "the user of the machine see these sources",
    )
    message_groups: tuple[GroupName, ...] | None = Field(
        None,
        description="groups for which queries of a queue are answered; unset: they see all skills",
    )
