"""Settings of learning from outcomes, and of sessions."""

from __future__ import annotations

from pydantic import Field

from config.settings_group import SettingsGroup


class LearningSettings(SettingsGroup):
    """Learning from reported outcomes. Everything learned is a function of the stored outcomes:
    without them, answers are the same as before.
    """

    memory: bool = Field(
        True, description="skills that helped with similar tasks rank higher, rejected ones lower"
    )
    links: bool = Field(
        True, description="skills that helped together are linked; links are weighed by outcomes"
    )
    days: float = Field(
        180.0, gt=0, description="how long answered queries and their outcomes are kept"
    )
    roll_up_seconds: float = Field(
        300.0, gt=0, description="interval at which the usage of days that changed is counted"
    )
    past_tasks: int = Field(
        100_000, ge=0, description="past tasks that a query is compared with: the newest"
    )
    trusted_owners: tuple[str, ...] = Field(
        (),
        description="tokens whose reports count as those of the user of this machine: without "
        "caps, alone, and for skills of sources that they contribute to",
    )
    daily_tasks: int = Field(
        3,
        ge=1,
        description="tasks of one owner and day that count for one statement, or in one "
        "neighbourhood of tasks, unless the owner is trusted",
    )
    least_owners: int = Field(
        2,
        ge=1,
        description="owners that must agree before a skill moves by more than one place, unless "
        "one of them is trusted",
    )


class SessionSettings(SettingsGroup):
    """Sessions of an agent: text that was sent before is named and not sent again."""

    hours: float = Field(12.0, gt=0, description="a session ends so long after its last query")
    queries: int = Field(50, ge=1, description="queries of a session that are considered, the last")
