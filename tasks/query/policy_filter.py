"""The policy on untrusted text, applied to the candidates of a query."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from config.settings import PolicySettings
from graph.protocol import Entry, Source, State
from search.protocol import Filters, StoredRevision
from skills import licences
from skills.bundle.model import Withheld, WithheldSkill
from skills.policy import Policy, Refusal, source_of
from skills.record import RevisionKey, SkillRecord
from skills.scanner import SCANNER, remarked

_NAMED = 50
"""Withheld skills that a bundle names; it counts all."""


class _Fact(NamedTuple):
    seq: int
    level: int
    licence: str
    scanner: int


class KnownFacts:
    """What is known of revisions that were candidates: it never changes of a revision that this
    scanner has marked. What an older one has marked is asked for again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, _Fact] = {}
        self._licences: dict[str, tuple[str, ...]] = {}

    def missing(self, keys: Iterable[RevisionKey]) -> list[str]:
        """Skills of which nothing is known at this revision by this scanner."""
        facts = self._facts
        return [
            skill_id
            for skill_id, seq in keys
            if (fact := facts.get(skill_id)) is None or fact.seq != seq or fact.scanner < SCANNER
        ]

    def learn(self, entries: Iterable[Entry]) -> None:
        """Take in what the catalog says."""
        learnt = {
            entry.skill_id: _Fact(entry.seq, entry.safety_level, entry.licence, entry.scanner)
            for entry in entries
            if entry.state is State.PUBLISHED
        }
        self._know(learnt)

    def read(self, key: RevisionKey, record: SkillRecord) -> None:
        """Take in what a revision itself says."""
        fact = _Fact(key.seq, record.safety_level, record.licence, record.scanner)
        if self._facts.get(key.skill_id) != fact:
            self._know({key.skill_id: fact})

    def _know(self, learnt: dict[str, _Fact]) -> None:
        with self._lock:
            self._facts.update(learnt)

    def licences_of(self, sources: Iterable[Source]) -> Mapping[str, tuple[str, ...]]:
        """The licences that sources allow, by source; while the catalog is away and tells of no
        source, those that it told last."""
        told = {source.source_id: source.licences for source in sources}
        if told:
            self._licences = told
        return self._licences

    def get(self, skill_id: str) -> _Fact | None:
        """What is known of a skill."""
        return self._facts.get(skill_id)


class ReadEntries(Protocol):
    """What screening asks of a catalog."""

    def entries(self, skill_ids: Sequence[str] | None = None) -> list[Entry]:
        """Entries by id."""
        ...


class Screen:
    """Says which candidates are withheld. One round trip for those not seen before.

    Of a skill that the catalog cannot tell about now, or that an older scanner has marked, only
    `final` decides, which reads the revision itself: nothing is sent that was not looked at.
    """

    def __init__(
        self,
        settings: PolicySettings,
        facts: KnownFacts,
        graph: ReadEntries,
        sources: Iterable[Source] = (),
    ) -> None:
        self.sources = tuple(sources)
        self.policy = Policy.of(settings).with_sources(facts.licences_of(self.sources))
        self.licences = settings.licences
        self._facts = facts
        self._graph = graph

    def __call__(self, keys: Sequence[RevisionKey]) -> dict[str, Refusal]:
        """Refusals by skill_id; who may be sent is not in it."""
        if self.policy.sends_all:
            return {}
        missing = self._facts.missing(keys)
        if missing:
            self._facts.learn(self._graph.entries(missing))
        refusals = ((key.skill_id, self._refusal(key.skill_id)) for key in keys)
        return {skill_id: refusal for skill_id, refusal in refusals if refusal}

    def _refusal(self, skill_id: str) -> Refusal | None:
        fact = self._facts.get(skill_id)
        if fact is None:
            return None
        return self.policy.refusal(source_of(skill_id), fact.level, fact.licence)

    def marked(self, revision: StoredRevision) -> StoredRevision:
        """The revision with the marks of this scanner, not scanned where it is known to have
        none."""
        parsed, fact = revision.parsed, self._facts.get(revision.key.skill_id)
        if parsed.record.scanner >= SCANNER or fact is None:
            return marked(revision)
        if fact.scanner < SCANNER or (fact.seq, fact.level) != (revision.key.seq, 0):
            return marked(revision)
        record = replace(parsed.record, safety=(), safety_level=0, scanner=SCANNER)
        return replace(revision, parsed=replace(parsed, record=record))

    def final(self, key: RevisionKey, record: SkillRecord) -> Refusal | None:
        """The verdict over the revision that is about to be sent, which is remembered."""
        self._facts.read(key, record)
        return self.policy.of_record(key.skill_id, record)


def policy_of(settings: PolicySettings, sources: Iterable[Source]) -> Policy:
    """The rules of the settings and of the sources, as every way out of the library applies
    them."""
    return Policy.of(settings).with_sources({one.source_id: one.licences for one in sources})


def marked(revision: StoredRevision) -> StoredRevision:
    """The revision with the marks of this scanner, whichever made those it was stored with."""
    parsed = remarked(revision.parsed)
    return revision if parsed is revision.parsed else replace(revision, parsed=parsed)


@dataclass(frozen=True, slots=True)
class WithheldHit:
    """A candidate that is kept back.

    place: how many that may be sent score higher. share: its score over the best of all.
    evidence, nearness: as in a ranking.
    """

    skill_id: str
    refusal: Refusal
    place: int = 0
    share: float = 0.0
    evidence: float = 0.0
    nearness: float = 0.0


def considered(
    hits: Iterable[WithheldHit], top: int, relative: float
) -> Iterator[tuple[str, Refusal]]:
    """Those that choosing would have looked at: near the top, and not far below the best."""
    for hit in hits:
        if hit.place < 2 * top and hit.share >= relative:
            yield hit.skill_id, hit.refusal


def also_ask(screen: Screen | None, filters: Filters, skill_ids: Iterable[str]) -> list[Filters]:
    """The query's filters, and narrower ones by which an engine finds what may be sent.

    Without them a policy that withholds most of a library would leave a query short of candidates;
    with them alone nobody would learn what is withheld. What the engine cannot compare (a licence
    in another case, the level) is left to the screen.
    """
    asked = [filters]
    if screen is None:
        return asked
    policy = screen.policy
    if policy.withheld and not filters.source:
        sources = {source_of(skill_id) for skill_id in skill_ids} - policy.withheld
        asked.append(replace(filters, source=tuple(sorted(sources))))
    if screen.licences and not filters.licence:
        wanted = dict.fromkeys(name for one in screen.licences for name in licences.names(one))
        asked.append(replace(asked[-1], licence=tuple(wanted)))
        trusted = policy.trusted.intersection(filters.source or policy.trusted)
        if trusted:
            asked.append(replace(filters, source=tuple(sorted(trusted))))
    return asked


def told(refusals: Mapping[str, Refusal], *, name_them: bool) -> Withheld:
    """What a bundle says of the skills that were withheld."""
    kinds = Counter(refusal.kind for refusal in refusals.values())
    named = [
        WithheldSkill(skill_id=skill_id, kind=refusal.kind, reason=refusal.reason)
        for skill_id, refusal in list(refusals.items())[: _NAMED if name_them else 0]
    ]
    return Withheld(count=len(refusals), kinds=dict(sorted(kinds.items())), skills=tuple(named))
