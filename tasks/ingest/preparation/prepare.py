"""Prepare a skill for the index from the bytes of its folder, without any store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from config.errors import PermanentError
from config.settings import Settings
from graph.links.mentions import find_mentions
from graph.records import Mention
from search.skill_analysis import SkillAnalysis, analyse_skill, body_terms, description_terms
from search.text.background_frequencies import load_background
from skills.parsing.parse_again import parse_again
from skills.parsing.parse_skill import ParseLimits, parse_skill
from skills.record import Completion, ParsedSkill
from tasks.ingest.preparation.campaign_indicators import load_indicators
from tasks.ingest.preparation.role_classifier import load_role_classifier
from tasks.policies import Deadline
from tasks.sources.directory import to_parse_limits
from tasks.sources.protocol import SkillFolder


@dataclass(frozen=True, slots=True)
class PreparationRequest:
    """A skill to prepare: its path and folder as read, and its completions by a language model."""

    path: str
    folder: SkillFolder
    completions: tuple[Completion, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparationSettings:
    """Settings of preparation.

    role_weights: file of the role classifier, "" for the built-in one. indicators: file of further
    indicators of campaigns, "" for none.
    """

    limits: ParseLimits
    role_weights: str = ""
    indicators: str = ""


def make_preparation_settings(settings: Settings) -> PreparationSettings:
    """Return the settings of preparation, from those of the library."""
    limits = to_parse_limits(settings.limits)
    return PreparationSettings(limits, settings.roles.weights, settings.policy.indicators)


@dataclass(frozen=True, slots=True)
class PreparedSkill:
    """A parsed and analysed skill, with what links compare (`graph.records.Publication`)."""

    parsed: ParsedSkill
    analysis: SkillAnalysis
    mentions: tuple[Mention, ...]
    body_terms: Mapping[int, float]
    description_terms: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class UnreadableSkill:
    """A skill that cannot be parsed, with the reason."""

    reason: str


class Preparer(Protocol):
    """Prepares skills. Threads may share it."""

    def prepare(
        self,
        requests: Sequence[PreparationRequest],
        settings: PreparationSettings,
        deadline: Deadline,
    ) -> Iterator[PreparedSkill | UnreadableSkill]:
        """Yield the outcome of each request, in order.

        Raises DeadlineExceededError when the time is over, PermanentError if a skill breaks the
        parser.
        """
        ...

    def close(self) -> None:
        """End the processes that this preparer started."""
        ...


class LocalPreparer(Preparer):
    """Prepares skills in the calling thread."""

    @override
    def prepare(
        self,
        requests: Sequence[PreparationRequest],
        settings: PreparationSettings,
        deadline: Deadline,
    ) -> Iterator[PreparedSkill | UnreadableSkill]:
        for request in requests:
            deadline.check("read")
            yield prepare_skill(request, settings)

    @override
    def close(self) -> None:
        """Do nothing: there are no processes."""


def prepare_skill(
    request: PreparationRequest, settings: PreparationSettings
) -> PreparedSkill | UnreadableSkill:
    """Prepare one skill."""
    folder, classifier = request.folder, load_role_classifier(settings.role_weights)
    load_indicators(settings.indicators)
    try:
        parsed = parse_skill(
            request.path,
            folder.content,
            folder.files,
            settings.limits,
            classifier,
            folder.sibling_files,
        )
    except PermanentError as error:
        return UnreadableSkill(str(error))
    return prepare_parsed(parsed.with_completions(request.completions))


def parse_stored(path: str, stored: ParsedSkill, settings: PreparationSettings) -> ParsedSkill:
    """Return what this version of the parser makes of a skill that is stored."""
    load_indicators(settings.indicators)
    return parse_again(path, stored, settings.limits, load_role_classifier(settings.role_weights))


def prepare_parsed(parsed: ParsedSkill) -> PreparedSkill:
    """Prepare a skill that was parsed before."""
    analysis, background = analyse_skill(parsed), load_background()
    return PreparedSkill(
        parsed,
        analysis,
        find_mentions(parsed),
        body_terms(analysis, background),
        description_terms(analysis, background),
    )
