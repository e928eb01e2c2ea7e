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
        True, description="skills that helped together are linked; outcomes change weights of links"
    )
    days: float = Field(
        180.0, gt=0, description="how long answered queries and their outcomes are kept"
    )
    roll_up_seconds: float = Field(
        300.0, gt=0, description="interval at which the usage of days that changed is counted"
    )
    past_tasks: int = Field(
        100_000,
        ge=0,
        description="maximum number of past tasks, the newest, that a query is compared with",
    )
    trusted_owners: tuple[str, ...] = Field(
        (),
        description="tokens whose reports count like those of the user of this machine: without "
        "`daily_tasks` and `least_owners`, and for skills of sources that they contribute to",
    )
    daily_tasks: int = Field(
        3,
        ge=1,
        description="maximum number of tasks of one owner and day that count for a link, or among "
        "the past tasks near a query, unless the owner is trusted",
    )
    least_owners: int = Field(
        2,
        ge=1,
        description="minimum number of owners that must agree before a skill moves by more than "
        "one place, unless one of them is trusted",
    )


class SessionSettings(SettingsGroup):
    """Sessions of an agent: text that was sent before is named and not sent again."""

    hours: float = Field(
        12.0, gt=0, description="hours from the last query of a session to its end"
    )
    queries: int = Field(
        50,
        ge=1,
        description="maximum number of queries of a session, the last ones, that are considered",
    )
