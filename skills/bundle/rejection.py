"""Reasons why a candidate is left out of a set of skills (R3-Skill's eight classes)."""

from __future__ import annotations

from enum import StrEnum


class RejectionReason(StrEnum):
    """Reason why a candidate is not used for a task.

    The first six reasons concern the candidate and the task; the last two compare the candidate
    with another candidate, which is used.
    """

    WRONG_DOMAIN = "wrong_domain"
    WRONG_TOOL = "wrong_tool"
    WRONG_PLATFORM = "wrong_platform"
    WRONG_STEP = "wrong_step"
    TOO_GENERAL = "too_general"
    TOO_SPECIFIC = "too_specific"
    REDUNDANT = "redundant"
    INCOMPATIBLE = "incompatible"

    @property
    def meaning(self) -> str:
        """The meaning in words, for prompts and explanations."""
        return _MEANINGS[self]


_MEANINGS = {
    RejectionReason.WRONG_DOMAIN: "it is about another subject than the task",
    RejectionReason.WRONG_TOOL: "it works with a tool, library or format that the task does not "
    "use",
    RejectionReason.WRONG_PLATFORM: "it is for another platform, language or environment than "
    "the task's",
    RejectionReason.WRONG_STEP: "it is on the subject, but for a step that the task does not ask "
    "for",
    RejectionReason.TOO_GENERAL: "its advice is generic and adds nothing for this task",
    RejectionReason.TOO_SPECIFIC: "it covers a special case that the task is not",
    RejectionReason.REDUNDANT: "a chosen candidate does the same already",
    RejectionReason.INCOMPATIBLE: "it must not be used together with a chosen candidate",
}
