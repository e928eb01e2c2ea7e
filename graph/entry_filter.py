"""Which entries of the catalog a list shows."""

from __future__ import annotations

from dataclasses import dataclass

from graph.protocol import SkillState


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries are listed: those that all of this holds for; None holds for any.

    name: as published skills have it, but for case and separators.
    """

    source_id: str | None = None
    state: SkillState | None = None
    name: str | None = None

    def id_range(self, after: str = "") -> tuple[str, str]:
        """Between which ids, both left out, those lie that sort after `after`: a skill's id begins
        with its source's and a colon."""
        if self.source_id is None:
            return after, _BEYOND
        return max(after, f"{self.source_id}:"), f"{self.source_id};"


_BEYOND = "\U0010ffff" * 201
"""Sorts after every skill's id: a source's has at most 200 characters, and then comes a colon."""
