"""The policy on untrusted text, applied to the candidates of a query."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from config.settings import PolicySettings
from graph.protocol import CatalogEntry, SkillState, Source
from search.protocol import Filters, StoredRevision
from skills import licences
from skills.bundle.model import Withheld, WithheldSkill
from skills.record import RevisionKey, SkillRecord
from skills.scanner import SCANNER_VERSION, rescan
from skills.skill_policy import PolicyViolation, SkillPolicy, get_source_id

_MAX_NAMED = 50
"""Withheld skills that a bundle names; it counts all."""


class _RevisionFact(NamedTuple):
    seq: int
    level: int
    licence: str
    scanner: int


class RevisionFactCache:
    """What is known of revisions that were candidates: it never changes of a revision that this
    scanner has marked. What an older one has marked is asked for again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, _RevisionFact] = {}
        self._licences: dict[str, tuple[str, ...]] = {}

    def find_missing(self, keys: Iterable[RevisionKey]) -> list[str]:
        """Skills of which nothing is known at this revision by this scanner."""
        facts = self._facts
        return [
            skill_id
            for skill_id, seq in keys
            if (fact := facts.get(skill_id)) is None
            or fact.seq != seq
            or fact.scanner < SCANNER_VERSION
        ]

    def add_entries(self, entries: Iterable[CatalogEntry]) -> None:
        """Take in what the catalog says."""
        learnt = {
            entry.skill_id: _RevisionFact(
                entry.seq, entry.safety_level, entry.licence, entry.scanner_version
            )
            for entry in entries
            if entry.state is SkillState.PUBLISHED
        }
        self._update(learnt)

    def add_record(self, key: RevisionKey, record: SkillRecord) -> None:
        """Take in what a revision itself says."""
        fact = _RevisionFact(key.seq, record.safety_level, record.licence, record.scanner)
        if self._facts.get(key.skill_id) != fact:
            self._update({key.skill_id: fact})

    def _update(self, learnt: dict[str, _RevisionFact]) -> None:
        with self._lock:
            self._facts.update(learnt)

    def licences_by_source(self, sources: Iterable[Source]) -> Mapping[str, tuple[str, ...]]:
        """The licences that sources allow, by source; while the catalog is away and tells of no
        source, those that it told last."""
        allowed = {source.source_id: source.licences for source in sources}
        if allowed:
            self._licences = allowed
        return self._licences

    def get(self, skill_id: str) -> _RevisionFact | None:
        """What is known of a skill."""
        return self._facts.get(skill_id)


class EntryReader(Protocol):
    """What screening asks of a catalog."""

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Entries by id."""
        ...


class PolicyFilter:
    """Says which candidates are withheld. One round trip for those not seen before.

    Of a skill that the catalog cannot tell about now, or that an older scanner has marked, only
    `final` decides, which reads the revision itself: nothing is sent that was not looked at.
    """

    def __init__(
        self,
        settings: PolicySettings,
        facts: RevisionFactCache,
        graph: EntryReader,
        sources: Iterable[Source] = (),
    ) -> None:
        self.sources = tuple(sources)
        self.policy = SkillPolicy.from_settings(settings).with_source_licences(
            facts.licences_by_source(self.sources)
        )
        self.licences = settings.licences
        self._facts = facts
        self._graph = graph

    def __call__(self, keys: Sequence[RevisionKey]) -> dict[str, PolicyViolation]:
        """Refusals by skill_id; who may be sent is not in it."""
        if self.policy.allows_all:
            return {}
        missing = self._facts.find_missing(keys)
        if missing:
            self._facts.add_entries(self._graph.get_entries(missing))
        refusals = ((key.skill_id, self._refusal(key.skill_id)) for key in keys)
        return {skill_id: violation for skill_id, violation in refusals if violation}

    def _refusal(self, skill_id: str) -> PolicyViolation | None:
        fact = self._facts.get(skill_id)
        if fact is None:
            return None
        return self.policy.find_violation(get_source_id(skill_id), fact.level, fact.licence)

    def rescan(self, revision: StoredRevision) -> StoredRevision:
        """The revision with the marks of this scanner, not scanned where it is known to have
        none."""
        parsed, fact = revision.parsed, self._facts.get(revision.key.skill_id)
        if parsed.record.scanner >= SCANNER_VERSION or fact is None:
            return rescan_revision(revision)
        if fact.scanner < SCANNER_VERSION or (fact.seq, fact.level) != (revision.key.seq, 0):
            return rescan_revision(revision)
        record = replace(parsed.record, safety=(), safety_level=0, scanner=SCANNER_VERSION)
        return replace(revision, parsed=replace(parsed, record=record))

    def check_revision(self, key: RevisionKey, record: SkillRecord) -> PolicyViolation | None:
        """The verdict over the revision that is about to be sent, which is remembered."""
        self._facts.add_record(key, record)
        return self.policy.find_record_violation(key.skill_id, record)


def make_policy(settings: PolicySettings, sources: Iterable[Source]) -> SkillPolicy:
    """The rules of the settings and of the sources, as every way out of the library applies
    them."""
    return SkillPolicy.from_settings(settings).with_source_licences(
        {one.source_id: one.licences for one in sources}
    )


def rescan_revision(revision: StoredRevision) -> StoredRevision:
    """The revision with the marks of this scanner, whichever made those it was stored with."""
    parsed = rescan(revision.parsed)
    return revision if parsed is revision.parsed else replace(revision, parsed=parsed)


@dataclass(frozen=True, slots=True)
class WithheldHit:
    """A candidate that is kept back.

    place: how many that may be sent score higher. share: its score over the best of all.
    evidence, nearness: as in a ranking.
    """

    skill_id: str
    violation: PolicyViolation
    rank: int = 0
    relative_score: float = 0.0
    evidence: float = 0.0
    best_cosine: float = 0.0


def filter_considered(
    hits: Iterable[WithheldHit], top: int, relative: float
) -> Iterator[tuple[str, PolicyViolation]]:
    """Those that choosing would have looked at: near the top, and not far below the best."""
    for hit in hits:
        if hit.rank < 2 * top and hit.relative_score >= relative:
            yield hit.skill_id, hit.violation


def expand_filters(
    policy_filter: PolicyFilter | None, filters: Filters, skill_ids: Iterable[str]
) -> list[Filters]:
    """The query's filters, and narrower ones by which an engine finds what may be sent.

    Without them a policy that withholds most of a library would leave a query short of candidates;
    with them alone nobody would learn what is withheld. What the engine cannot compare (a licence
    in another case, the level) is left to the screen.
    """
    expanded = [filters]
    if policy_filter is None:
        return expanded
    policy = policy_filter.policy
    if policy.withheld_sources and not filters.source:
        sources = {get_source_id(skill_id) for skill_id in skill_ids} - policy.withheld_sources
        expanded.append(replace(filters, source=tuple(sorted(sources))))
    if policy_filter.licences and not filters.licence:
        wanted = dict.fromkeys(
            name for one in policy_filter.licences for name in licences.licence_names(one)
        )
        expanded.append(replace(expanded[-1], licence=tuple(wanted)))
        trusted = policy.trusted_sources.intersection(filters.source or policy.trusted_sources)
        if trusted:
            expanded.append(replace(filters, source=tuple(sorted(trusted))))
    return expanded


def build_withheld(refusals: Mapping[str, PolicyViolation], *, name_them: bool) -> Withheld:
    """What a bundle says of the skills that were withheld."""
    kinds = Counter(violation.kind for violation in refusals.values())
    named = [
        WithheldSkill(skill_id=skill_id, kind=violation.kind, reason=violation.reason)
        for skill_id, violation in list(refusals.items())[: _MAX_NAMED if name_them else 0]
    ]
    return Withheld(count=len(refusals), kinds=dict(sorted(kinds.items())), skills=tuple(named))
