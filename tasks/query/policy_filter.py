"""Policy on untrusted text, applied to the candidates of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from config.bundle_settings import PolicySettings
from config.errors import TransientError
from config.settings import Settings
from graph.records import SafetyRecord, Source
from search.protocol import Filters, StoredRevision
from skills import licences
from skills.judgement import Judgement
from skills.record import RevisionKey, SkillRecord, get_source_id
from skills.review import NO_REVIEWS, Reviews
from skills.scanner import SCANNER_VERSION, rescan
from skills.skill_policy import PolicyViolation, SkillPolicy, check_rule_ids
from tasks.query.process_state.revision_facts import RevisionFactCache
from tasks.query.ranking import RankedSkill, Ranking, WithheldHit

_LOAD_ATTEMPTS = 3
_MAX_RESCANNED = 4_096
_rescanned: dict[tuple[RevisionKey, str], SkillRecord] = {}
"""Records with the findings of the present scanner, by revision and content hash. They are of
revisions that an older scanner read: the index does not change them until their text changes."""

ReadRevisions = Callable[[Sequence[RevisionKey]], Mapping[RevisionKey, StoredRevision]]
"""Function that reads revisions of the index; missing revisions are left out."""


class SafetyReader(Protocol):
    """The part of a catalog that the filter reads."""

    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        """See `graph.protocol.Catalog`."""
        ...


class PolicyFilter:
    """Filter for the candidates that the policy withholds, with at most one round trip per call.

    A skill passes provisionally if the catalog does not answer or an older scanner read it; then
    `check_revision` decides by the revision itself, before it is sent. The revision of a skill that
    a person decided about, or that is withheld while rules are suppressed, is read once.

    read_revisions: reads revisions of the index; None if there are no reviews. pinned: revisions by
    skill that the request names in place of the published ones.
    """

    def __init__(
        self,
        settings: PolicySettings,
        facts: RevisionFactCache,
        graph: SafetyReader,
        sources: Iterable[Source] = (),
        judge: str = "",
        reviews: Reviews = NO_REVIEWS,
        read_revisions: ReadRevisions | None = None,
        pinned: Mapping[str, StoredRevision] | None = None,
    ) -> None:
        self.sources = tuple(sources)
        self._policy = SkillPolicy.from_settings(settings, judge, reviews).with_source_licences(
            facts.licences_by_source(self.sources)
        )
        self._licences = settings.licences
        self._facts = facts
        self._graph = graph
        self._read_revisions = read_revisions
        self.pinned = pinned or {}

    @classmethod
    def allow_all(
        cls, graph: SafetyReader, pinned: Mapping[str, StoredRevision] | None = None
    ) -> PolicyFilter:
        """Return a filter that withholds nothing."""
        settings = PolicySettings(highest_level=3)
        return cls(settings, RevisionFactCache(), graph, pinned=pinned)

    def find_violations(self, keys: Sequence[RevisionKey]) -> dict[str, PolicyViolation]:
        """Return the given skills that are withheld, by skill_id, with the reason."""
        if self._policy.allows_all:
            return {}
        self._load_facts(keys)
        found = self._find_by_facts(keys)
        if not (self.pinned or self._policy.has_exceptions):
            return found
        contested = [
            key
            for key in keys
            if key.skill_id in self.pinned
            or self._policy.needs_record(key.skill_id, found.get(key.skill_id))
        ]
        for key, violation in self._find_contested(contested).items():
            found.pop(key.skill_id, None)
            if violation is not None:
                found[key.skill_id] = violation
        return found

    def _find_by_facts(self, keys: Sequence[RevisionKey]) -> dict[str, PolicyViolation]:
        # A thousand skills have few different combinations of the facts that policy checks.
        find = lru_cache(maxsize=None)(self._policy.find_violation)
        found = {}
        for skill_id, _ in keys:
            fact = self._facts.get(skill_id)
            if fact is None:
                continue
            source = get_source_id(skill_id)
            if violation := find(source, fact.level, fact.licence, fact.judgements):
                found[skill_id] = violation
        return found

    def _find_contested(
        self, keys: Sequence[RevisionKey]
    ) -> dict[RevisionKey, PolicyViolation | None]:
        """Return the policy's decision on these revisions by their own text. Unreadable revisions
        are left out, so that the catalog's data decide, which do not include waivers."""
        missing = [
            key
            for key in keys
            if key.skill_id not in self.pinned and self._facts.get_contested(key) is None
        ]
        if missing and self._read_revisions is not None:
            with suppress(TransientError):
                for key, revision in self._read_revisions(missing).items():
                    record = self.rescan(revision).parsed.record
                    self._facts.add_contested(key, revision.content_hash, record)
        found: dict[RevisionKey, PolicyViolation | None] = {}
        for key in keys:
            if (pinned := self.pinned.get(key.skill_id)) is not None:
                found[key] = self._policy.find_record_violation(
                    key.skill_id, pinned.content_hash, pinned.parsed.record
                )
            elif (known := self._facts.get_contested(key)) is not None:
                found[key] = self._policy.find_record_violation(
                    key.skill_id, known.content_hash, known.record, self._judgements(key)
                )
        return found

    def _load_facts(self, keys: Sequence[RevisionKey]) -> None:
        """Load the facts of these revisions into the cache, if the catalog has them."""
        missing = self._facts.find_missing(keys)
        for attempt in range(_LOAD_ATTEMPTS if missing else 0):
            version = self._facts.version if attempt < _LOAD_ATTEMPTS - 1 else None
            if self._facts.add_safety_records(self._graph.get_safety_records(missing), version):
                break

    def withhold(self, ranking: Ranking) -> Ranking:
        """Return the ranking with its withheld hits moved to `withheld`.

        Withheld skills that search found are in `withheld` already; this handles skills that were
        added over links.
        """
        violations = self.find_violations([hit.key for hit in ranking.hits])
        if not violations:
            return ranking
        known = {hit.skill_id for hit in ranking.withheld}
        best = max(hit.score for hit in ranking.hits)
        kept: list[RankedSkill] = []
        linked: list[WithheldHit] = []
        for hit in ranking.hits:
            violation = violations.get(hit.key.skill_id)
            if violation is None:
                kept.append(hit)
            elif hit.key.skill_id not in known and best > 0:
                relative = hit.score / best
                linked.append(WithheldHit(hit.key.skill_id, violation, len(kept), relative, hit))
        return replace(ranking, hits=tuple(kept), withheld=(*ranking.withheld, *linked))

    def load_judgements(self, keys: Sequence[RevisionKey]) -> None:
        """Load the judgements of these revisions into the cache, if the policy uses any."""
        if self._policy.judge:
            self._load_facts(keys)

    def check_revision(self, revision: StoredRevision) -> PolicyViolation | None:
        """Return why a revision that was read must not be sent; None if it may. Caches its
        facts."""
        key, record = revision.key, revision.parsed.record
        if key.skill_id not in self.pinned:
            self._facts.add_record(key, record)
        return self._policy.find_record_violation(
            key.skill_id, revision.content_hash, record, self._judgements(key)
        )

    def settle(self, revision: StoredRevision) -> StoredRevision:
        """Return the revision with the findings that count, including that of its judgement."""
        return settle_revision(self._policy, revision, self._judgements(revision.key))

    def _judgements(self, key: RevisionKey) -> tuple[Judgement, ...]:
        fact = self._facts.get(key.skill_id)
        return fact.judgements if fact is not None and fact.seq == key.seq else ()

    def rescan(self, revision: StoredRevision) -> StoredRevision:
        """Return the revision with the findings of the present scanner; skips the scan if the cache
        says that this scanner finds nothing in it."""
        parsed, fact = revision.parsed, self._facts.get(revision.key.skill_id)
        if parsed.record.scanner >= SCANNER_VERSION or fact is None:
            return rescan_revision(revision)
        if fact.scanner < SCANNER_VERSION or (fact.seq, fact.level) != (revision.key.seq, 0):
            return rescan_revision(revision)
        record = replace(parsed.record, safety=(), safety_level=0, scanner=SCANNER_VERSION)
        return replace(revision, parsed=replace(parsed, record=record))

    def expand_filters(self, filters: Filters, skill_ids: Iterable[str]) -> list[Filters]:
        """Return the query's filters, then narrower filters with which an engine finds skills that
        may be sent.

        With the query's filters alone, a policy that withholds most of a library would leave too
        few candidates; with the narrower filters alone, the bundle could not report withheld
        skills. `find_violations` checks what an engine cannot compare (a licence in another case,
        the level).
        """
        expanded = [filters]
        policy = self._policy
        if policy.withheld_sources and not filters.source:
            sources = {one.source_id for one in self.sources}
            # Sources are not known while the catalog is away.
            sources = sources or {get_source_id(skill_id) for skill_id in skill_ids}
            sent = sorted(sources - policy.withheld_sources)
            expanded.append(replace(filters, source=tuple(sent)))
        if self._licences and not filters.licence:
            wanted = dict.fromkeys(
                name for one in self._licences for name in licences.licence_names(one)
            )
            expanded.append(replace(expanded[-1], licence=tuple(wanted)))
            trusted = policy.trusted_sources.intersection(filters.source or policy.trusted_sources)
            if trusted:
                expanded.append(replace(filters, source=tuple(sorted(trusted))))
        return expanded


def make_policy(settings: Settings, sources: Iterable[Source], reviews: Reviews) -> SkillPolicy:
    """Return the policy of the settings, of the sources' licence lists, and of the reviews.

    Raises UsageError for suppressed rules that do not exist.
    """
    check_rule_ids(settings.policy.suppressed_rules, "policy.suppressed_rules")
    judge = settings.language_model.judge
    return SkillPolicy.from_settings(settings.policy, judge, reviews).with_source_licences(
        {one.source_id: one.licences for one in sources}
    )


def rescan_revision(revision: StoredRevision) -> StoredRevision:
    """Return the revision with the findings of the present scanner; scans each revision once per
    process."""
    parsed = revision.parsed
    if parsed.record.scanner >= SCANNER_VERSION:
        return revision
    place = (revision.key, revision.content_hash)
    record = _rescanned.get(place)
    if record is None:
        if len(_rescanned) >= _MAX_RESCANNED:
            _rescanned.clear()
        record = _rescanned[place] = rescan(parsed).record
    return replace(revision, parsed=replace(parsed, record=record))


def settle_revision(
    policy: SkillPolicy, revision: StoredRevision, judgements: Iterable[Judgement]
) -> StoredRevision:
    """Return the revision as it is sent: with the findings that count, and their level."""
    parsed = revision.parsed
    record = policy.settle(revision.key.skill_id, revision.content_hash, parsed.record, judgements)
    if record is parsed.record:
        return revision
    return replace(revision, parsed=replace(parsed, record=record))
