"""Settings of the content of a bundle: permitted skills, and the choice of their passages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from config.settings_group import SettingsGroup


class PassageSettings(SettingsGroup):
    """Selection of the passages of a chosen skill that are sent."""

    method: Literal["f", "mmr", "full"] = "f"
    miss: float = Field(
        0.2,
        ge=0,
        le=1,
        description="share of needed passages that method `f` may miss if the budget is short; 0: "
        "it sends the whole skill",
    )
    milliseconds: int = Field(
        100,
        ge=0,
        description="time limit for embedding sections, or passages for `mmr`, without vectors",
    )
    mmr_lambda: float = Field(
        0.7, ge=0, le=1, description="weight of relevance against redundancy in `mmr`"
    )
    mmr_passages: int = Field(
        20, ge=1, description="maximum number of passages of a skill in `mmr`"
    )
    mmr_passages_long: int = Field(
        60, ge=1, description="maximum number of passages in `mmr` of a skill with more than 100"
    )


class PolicySettings(SettingsGroup):
    """Policy on which skills may be sent. A withheld skill stays in the library; bundles leave it
    out and count it.
    """

    highest_level: int = Field(
        1,
        ge=0,
        le=3,
        description="scanner level up to which skills are sent; 0: only without findings, 3: all",
    )
    licences: tuple[str, ...] = Field(
        (),
        description="licences whose skills are sent, as SPDX identifiers or as the skills state "
        "them; `unknown`: skills that state none; empty: any",
    )
    sources: dict[str, Literal["send", "withhold"]] = Field(
        {},
        description="by source: `send` sends all of its skills regardless of level and licence, "
        "`withhold` none",
    )
    public: tuple[str, ...] = Field(
        (),
        description="sources whose skills the gateway also serves under `/.well-known/` without a "
        "token, except withheld ones; empty: none",
    )
    name_withheld: bool = Field(
        True, description="name withheld skills in bundles, not only their number and reasons"
    )
    suppressed_rules: tuple[str, ...] = Field(
        (),
        description="ids of scanner rules whose findings do not count for the level of any skill; "
        "they stay listed. `judgement`: judgements of a language model",
    )
    review: tuple[str, ...] = Field(
        (),
        description="sources whose new and changed skills wait for a person before they are "
        "published; patterns with `*` match several, and with a colon whole skill ids, as "
        "`team:drafts/*`",
    )
    indicators: str = Field(
        "",
        description="file with further indicators of campaigns (hosts, names, hashes) for the "
        "scanner, as JSON; empty: those that ship with skillbus",
    )
