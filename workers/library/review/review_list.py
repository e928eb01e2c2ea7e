"""Lists of reviews: withheld skills, updates that wait, decisions and waivers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import merge
from itertools import chain
from typing import Any, NamedTuple

from config.settings import Settings
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState
from search.protocol import StoredRevision
from search.review_store import ReviewStore
from skills.batches import batches
from skills.record import RevisionKey, SafetyFinding
from skills.review import ReviewKind, ReviewRecord, Reviews, collect_rule_ids
from skills.skill_policy import SkillPolicy, is_reviewed_source
from tasks.ingest.held.reviewed import UPDATE_KINDS
from tasks.query.policy_filter import ReadRevisions, rescan_revision
from workers.library.entry_policy import EntryPolicy
from workers.library.review.decisions import waiver_data
from workers.library.skill_data import decision_data, finding_data
from workers.library.skill_reader import iterate_entries, select_marked

_FINDINGS, _UPDATE = "findings", "update"
_READ_AT_ONCE = 32
_MAX_LOOKED_AT = 1_000
_COUNT_SECONDS = 30.0


class ReviewState(StrEnum):
    """State of a review."""

    WAITING = "waiting"
    RELEASED = "released"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


_DECIDED = (ReviewState.RELEASED.value, ReviewState.CONFIRMED.value, ReviewState.REJECTED.value)


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A skill that waits for a person's decision, or has one.

    about: `findings` that withhold it, or an `update`. seq: of the revision. level, rules: of its
    findings that count. most_severe: the first of these of the highest level. all_rules: of all its
    findings, including waived ones. decision: the newest, None while the skill waits.
    published_seq: 0 while no revision is published.
    """

    skill_id: str
    about: str
    state: ReviewState
    seq: int
    published_seq: int = 0
    level: int = 0
    rules: tuple[str, ...] = ()
    all_rules: tuple[str, ...] = ()
    decision: ReviewRecord | None = None
    most_severe: SafetyFinding | None = None

    @property
    def place(self) -> ReviewPlace:
        """Place of the review in the list."""
        return ReviewPlace(self.about, self.skill_id)

    def describe(self) -> dict[str, Any]:
        """Return the review as JSON data."""
        return {
            "skill_id": self.skill_id,
            "about": self.about,
            "state": self.state.value,
            "seq": self.seq,
            "published_seq": self.published_seq or None,
            "level": self.level,
            "rules": list(self.rules),
            "finding": finding_data(self.most_severe) if self.most_severe else None,
            "decision": decision_data(self.decision) if self.decision else None,
        }


class ReviewPlace(NamedTuple):
    """A place in the list."""

    about: str
    skill_id: str


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """Filter of reviews; None matches any. rule: of a finding, which may be waived."""

    state: ReviewState | None = None
    source_id: str | None = None
    about: str | None = None
    rule: str | None = None
    skill_id: str | None = None

    def covers(self, one: ReviewItem) -> bool:
        """Return whether a review matches."""
        return (
            self.state in (None, one.state)
            and self.about in (None, one.about)
            and (self.rule is None or self.rule in one.all_rules)
        )


class ReviewPage(NamedTuple):
    """A page of reviews. after: the place where the next page begins, None on the last page."""

    items: list[ReviewItem]
    after: ReviewPlace | None


class ReviewLister:
    """Lists reviews of a library: first those about findings, by skill, then updates, by skill.

    read_revisions: reads revisions of the index; a count rarely needs it.
    """

    def __init__(
        self, settings: Settings, graph: Catalog, read_revisions: ReadRevisions, store: ReviewStore
    ) -> None:
        self._settings = settings
        self._graph = graph
        self._read_revisions = read_revisions
        self._store = store
        self._clock = time.monotonic
        self._lock = threading.Lock()
        self._counts: dict[str, int] | None = None
        self._counted_at = 0.0

    def list_items(self, wanted: ReviewFilter) -> Iterator[ReviewItem]:
        """Yield waiting and decided reviews."""
        for _, item in self._walk(wanted, None):
            if item is not None and wanted.covers(item):
                yield item

    def find_page(self, wanted: ReviewFilter, after: ReviewPlace | None, limit: int) -> ReviewPage:
        """Return a page of reviews.

        after: `after` of the previous page. A page ends after a number of skills, so it may have
        fewer reviews than `limit`, or none.
        """
        items: list[ReviewItem] = []
        place = after
        for looked, (place_now, item) in enumerate(self._walk(wanted, after)):
            if len(items) == limit or looked == _MAX_LOOKED_AT:
                return ReviewPage(items, place)
            place = place_now
            if item is not None and wanted.covers(item):
                items.append(item)
        return ReviewPage(items, None)

    def _walk(
        self, wanted: ReviewFilter, after: ReviewPlace | None
    ) -> Iterator[tuple[ReviewPlace, ReviewItem | None]]:
        """Yield the places after a place, each with its review, None if nothing is to review."""
        skill_id = wanted.skill_id
        reviews = self._store.get_all() if skill_id is None else self._store.get([skill_id])
        first = after or ReviewPlace(_FINDINGS, "")
        if first.about == _FINDINGS and wanted.about in (None, _FINDINGS):
            policy = self._get_policy(reviews)
            entries = self._find_suspects(policy, reviews, wanted, first.skill_id)
            for batch in batches(entries, _READ_AT_ONCE):
                for entry, item in zip(batch, self._judge(policy, batch), strict=True):
                    yield ReviewPlace(_FINDINGS, entry.skill_id), item
            first = ReviewPlace(_UPDATE, "")
        if wanted.about in (None, _UPDATE) and wanted.rule is None:
            after_id = first.skill_id if first.about == _UPDATE else ""
            for item in self._list_updates(reviews, wanted.source_id, after_id):
                yield item.place, item

    def count(self) -> dict[str, int]:
        """Return counts: `withheld` skills and `updates` that wait, and decided reviews by state.

        They are at most half a minute old, unless `expire` was called.
        """
        with self._lock:
            if self._counts is None or self._clock() > self._counted_at + _COUNT_SECONDS:
                self._counts, self._counted_at = self._count(), self._clock()
            return self._counts

    def expire(self) -> None:
        """Make the next call of `count` count again."""
        with self._lock:
            self._counts = None

    def _count(self) -> dict[str, int]:
        reviews = self._store.get_all()
        counts = dict.fromkeys(("withheld", "updates", *_DECIDED), 0)
        items = chain(self._list_contested(reviews, counts), self._list_updates(reviews, None))
        for one in items:
            waiting = "withheld" if one.about == _FINDINGS else "updates"
            counts[waiting if one.state is ReviewState.WAITING else one.state.value] += 1
        return counts

    def _list_contested(self, reviews: Reviews, counts: dict[str, int]) -> Iterator[ReviewItem]:
        """Yield the reviews about findings that cannot be judged by the catalog alone. Other
        withheld skills, whose revisions need not be read, are added to the counts."""
        policy = self._get_policy(reviews)
        for batch in batches(
            self._find_suspects(policy, reviews, ReviewFilter(), ""), _READ_AT_ONCE
        ):
            contested = [
                one
                for one in batch
                if policy.policy.suppressed_rules or one.skill_id in reviews.by_skill
            ]
            counts["withheld"] += len(batch) - len(contested)
            yield from filter(None, self._judge(policy, contested))

    def list_waivers(self, source_id: str | None = None) -> list[dict[str, Any]]:
        """Return the waivers by skill as data; waivers of contents that the skill no
        longer has are `ended`."""
        waivers = [
            one
            for records in self._store.get_all().by_skill.values()
            for one in records
            if one.kind is ReviewKind.WAIVER and _is_of(one.skill_id, source_id)
        ]
        entries = self._graph.get_entries(sorted({one.skill_id for one in waivers}))
        contents = {entry.skill_id: entry.content_hash for entry in entries}
        return [
            waiver_data(
                one, "in force" if contents.get(one.skill_id) == one.content_hash else "ended"
            )
            for one in waivers
        ]

    # -- findings

    def _get_policy(self, reviews: Reviews) -> EntryPolicy:
        return EntryPolicy.of_catalog(self._settings, self._graph, self._read_revisions, reviews)

    def _find_suspects(
        self, policy: EntryPolicy, reviews: Reviews, wanted: ReviewFilter, after_id: str
    ) -> Iterator[CatalogEntry]:
        """Yield published skills that are withheld for their level, or that a person confirmed, by
        id. Skills that are known to have no finding of the wanted rule may be left out."""
        confirmed = {
            name
            for name, records in reviews.by_skill.items()
            if name > after_id
            and _is_of(name, wanted.source_id)
            and any(one.kind is ReviewKind.CONFIRMATION for one in records)
        }
        if wanted.skill_id is not None:
            entries: Iterable[CatalogEntry] = self._graph.get_entries([wanted.skill_id])
        else:
            highest = policy.policy.highest_level
            selection = select_marked(self._graph, wanted.source_id, wanted.rule, highest)
            entries = iterate_entries(self._graph, selection, after_id)
        suspects = (
            one
            for one in entries
            if one.skill_id not in confirmed and _exceeds_level(policy.policy, one)
        )
        quarantined = sorted(self._graph.get_entries(sorted(confirmed)), key=_get_id)
        found = merge(suspects, quarantined, key=_get_id)
        return (one for one in found if one.state is SkillState.PUBLISHED)

    def _judge(
        self, policy: EntryPolicy, entries: Sequence[CatalogEntry]
    ) -> Iterator[ReviewItem | None]:
        """Yield the review of each entry, None if there is nothing to review."""
        keys = [RevisionKey(one.skill_id, one.seq) for one in entries]
        stored = self._read_revisions(keys) if keys else {}
        for entry, key in zip(entries, keys, strict=True):
            # The revision may have been superseded meanwhile.
            yield _judge_revision(policy, entry, stored[key]) if key in stored else None

    # -- updates

    def _list_updates(
        self, reviews: Reviews, source_id: str | None, after_id: str = ""
    ) -> Iterator[ReviewItem]:
        records = {
            name: max(held, key=lambda one: one.seq)
            for name, found in reviews.by_skill.items()
            if name > after_id
            and _is_of(name, source_id)
            and is_reviewed_source(self._settings.policy, name)
            and (held := [one for one in found if one.kind in UPDATE_KINDS])
        }
        for entry in sorted(self._graph.get_entries(sorted(records)), key=_get_id):
            record = records[entry.skill_id]
            if entry.state is SkillState.REMOVED or record.seq <= entry.seq:
                continue
            if record.kind is ReviewKind.APPROVAL:  # about to be published
                continue
            is_rejected = record.kind is ReviewKind.REJECTION
            yield ReviewItem(
                entry.skill_id,
                _UPDATE,
                ReviewState.REJECTED if is_rejected else ReviewState.WAITING,
                record.seq,
                entry.seq,
                decision=record if is_rejected else None,
            )


def _is_of(skill_id: str, source_id: str | None) -> bool:
    return source_id is None or skill_id.startswith(f"{source_id}:")


def _get_id(entry: CatalogEntry) -> str:
    return entry.skill_id


def _exceeds_level(policy: SkillPolicy, entry: CatalogEntry) -> bool:
    """Return whether an entry is withheld for its level, by the data of the catalog."""
    violation = policy.find_violation(
        entry.source_id, entry.safety_level, entry.licence, entry.judgements
    )
    return violation is not None and violation.kind == "safety"


def _judge_revision(
    policy: EntryPolicy, entry: CatalogEntry, revision: StoredRevision
) -> ReviewItem | None:
    findings, violation = policy.judge_revision(entry, rescan_revision(revision))
    records = policy.policy.reviews.get(entry.skill_id, revision.content_hash)
    confirmed = [one for one in records if one.kind is ReviewKind.CONFIRMATION]
    waivers = [one for one in records if one.kind is ReviewKind.WAIVER]
    if confirmed:
        state, decision = ReviewState.CONFIRMED, confirmed[0]
    elif violation is not None and violation.kind == "safety":
        state, decision = ReviewState.WAITING, None
    elif waivers:
        state, decision = ReviewState.RELEASED, max(waivers, key=lambda one: one.recorded)
    else:  # its rules are suppressed, or a newer scanner finds less
        return None
    return ReviewItem(
        *(entry.skill_id, _FINDINGS, state, entry.seq, entry.seq, findings.level),
        rules=collect_rule_ids(findings.counted),
        all_rules=collect_rule_ids(findings.findings),
        decision=decision,
        most_severe=max(findings.counted, key=lambda one: one.level, default=None),
    )
