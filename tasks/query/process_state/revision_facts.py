"""Cache of what the policy asks about revisions: safety level and licence."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graph.records import CatalogEntry, SkillState, Source
from skills.record import RevisionKey, SkillRecord
from skills.scanner import SCANNER_VERSION


class RevisionFact(NamedTuple):
    """Safety level and licence of a skill's revision, and the scanner version behind the level."""

    seq: int
    level: int
    licence: str
    scanner: int


class RevisionFactCache:
    """Facts of revisions that were candidates of a query; thread-safe.

    The facts of a revision that the present scanner has read never change. Those of an older
    scanner count as missing, so that they are asked for again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, RevisionFact] = {}
        self._licences: dict[str, tuple[str, ...]] = {}

    def get(self, skill_id: str) -> RevisionFact | None:
        """The facts of a skill, of whichever revision was cached last."""
        return self._facts.get(skill_id)

    def find_missing(self, keys: Iterable[RevisionKey]) -> list[str]:
        """Ids of the skills without facts of this revision by the present scanner."""
        facts = self._facts
        return [
            skill_id
            for skill_id, seq in keys
            if (fact := facts.get(skill_id)) is None
            or fact.seq != seq
            or fact.scanner < SCANNER_VERSION
        ]

    def add_entries(self, entries: Iterable[CatalogEntry]) -> None:
        """Cache the facts of published catalog entries."""
        facts = {
            entry.skill_id: RevisionFact(
                entry.seq, entry.safety_level, entry.licence, entry.scanner_version
            )
            for entry in entries
            if entry.state is SkillState.PUBLISHED
        }
        self._update(facts)

    def add_record(self, key: RevisionKey, record: SkillRecord) -> None:
        """Cache the facts of a revision that was read from the index."""
        fact = RevisionFact(key.seq, record.safety_level, record.licence, record.scanner)
        if self._facts.get(key.skill_id) != fact:
            self._update({key.skill_id: fact})

    def _update(self, facts: Mapping[str, RevisionFact]) -> None:
        with self._lock:
            self._facts.update(facts)

    def licences_by_source(self, sources: Iterable[Source]) -> Mapping[str, tuple[str, ...]]:
        """The licences that sources allow, by source id.

        Without sources, as while the catalog does not answer, those of the last call that had some.
        """
        allowed = {source.source_id: source.licences for source in sources}
        if allowed:
            self._licences = allowed
        return self._licences
