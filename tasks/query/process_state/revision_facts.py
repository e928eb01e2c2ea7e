"""Cache of the facts about revisions that policy checks: safety level, licence and judgements."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from graph.records import SafetyRecord, Source
from skills.judgement import Judgement
from skills.record import RevisionKey, SkillRecord
from skills.scanner import SCANNER_VERSION


class RevisionFact(NamedTuple):
    """Safety level and licence of a skill's revision, and the scanner version behind the level.

    judgements: of language models. is_of_catalog: whether the facts are from the catalog, which
    alone has the judgements.
    """

    seq: int
    level: int
    licence: str
    scanner: int
    judgements: tuple[Judgement, ...] = ()
    is_of_catalog: bool = True


class ContestedRevision(NamedTuple):
    """A revision whose findings decide too, not only its level; with the findings of the present
    scanner."""

    seq: int
    content_hash: str
    record: SkillRecord


class RevisionFactCache:
    """Facts of revisions that were candidates of a query; thread-safe.

    The facts of a revision by the present scanner change only with its judgements, and the change
    feed names these changes. Facts by an older scanner count as missing, so that they are read
    again. version: version of the cache; it changes with every `forget`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, RevisionFact] = {}
        self.version = 0
        self._licences: dict[str, tuple[str, ...]] = {}
        self._contested: dict[str, ContestedRevision] = {}

    def get(self, skill_id: str) -> RevisionFact | None:
        """Return the facts of the revision of a skill that was cached last."""
        return self._facts.get(skill_id)

    def find_missing(self, keys: Iterable[RevisionKey]) -> list[str]:
        """Return the ids of the skills without facts of this revision by the present scanner."""
        facts = self._facts
        return [
            skill_id
            for skill_id, seq in keys
            if (fact := facts.get(skill_id)) is None
            or fact.seq != seq
            or fact.scanner < SCANNER_VERSION
            or not fact.is_of_catalog
        ]

    def add_safety_records(
        self, records: Iterable[SafetyRecord], version: int | None = None
    ) -> bool:
        """Cache the facts that the catalog has of published skills.

        version: version of the cache before the records were read. If facts were dropped since,
        nothing is cached and False is returned, since the records may be outdated.
        """
        facts = {
            skill_id: RevisionFact(seq, level, licence, scanner, judgements)
            for skill_id, seq, level, licence, scanner, judgements in records
        }
        with self._lock:
            if version is not None and version != self.version:
                return False
            self._facts.update(facts)
        return True

    def add_record(self, key: RevisionKey, record: SkillRecord) -> None:
        """Cache the facts of a revision that was read from the index; its judgements stay."""
        fact = RevisionFact(
            key.seq, record.safety_level, record.licence, record.scanner, is_of_catalog=False
        )
        with self._lock:
            known = self._facts.get(key.skill_id)
            if known is not None and known.seq == key.seq:
                fact = fact._replace(judgements=known.judgements, is_of_catalog=known.is_of_catalog)
            self._facts[key.skill_id] = fact

    def get_contested(self, key: RevisionKey) -> ContestedRevision | None:
        """Return a cached contested revision, None if it is not cached."""
        found = self._contested.get(key.skill_id)
        return found if found is not None and found.seq == key.seq else None

    def add_contested(self, key: RevisionKey, content_hash: str, record: SkillRecord) -> None:
        """Cache a contested revision."""
        kept = SkillRecord(
            *(record.name, "", ""),
            licence=record.licence,
            safety_level=record.safety_level,
            safety=record.safety,
            scanner=record.scanner,
        )
        self._contested[key.skill_id] = ContestedRevision(key.seq, content_hash, kept)

    def forget(self, skill_ids: Collection[str]) -> None:
        """Drop the facts of skills whose judgements may have changed."""
        if skill_ids:
            with self._lock:
                self.version += 1
                for skill_id in skill_ids:
                    self._facts.pop(skill_id, None)

    def licences_by_source(self, sources: Iterable[Source]) -> Mapping[str, tuple[str, ...]]:
        """Return the licences that sources allow, by source id.

        Without sources, as while the catalog does not answer, the licences of the last call with
        sources.
        """
        allowed = {source.source_id: source.licences for source in sources}
        if allowed:
            self._licences = allowed
        return self._licences
