"""The policy applied to catalog entries: their levels, and why they are withheld."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from config.settings import Settings
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState
from search.protocol import StoredRevision
from skills.record import RevisionKey
from skills.review import CountedFindings, Reviews
from skills.skill_policy import PolicyViolation, SkillPolicy
from tasks.query.policy_filter import ReadRevisions, make_policy, rescan_revision


class PolicyResult(NamedTuple):
    """Result of the policy for an entry. level: of the findings that count. violation: None if the
    skill may be sent, or is not published."""

    level: int
    violation: PolicyViolation | None

    @property
    def withheld(self) -> str | None:
        """Why the skill is kept out of bundles, None if it is not."""
        return self.violation.reason if self.violation else None


class RevisionStanding(NamedTuple):
    """Result of the policy for a revision: its findings, with those that count."""

    findings: CountedFindings
    violation: PolicyViolation | None

    @property
    def result(self) -> PolicyResult:
        """The result for its entry."""
        return PolicyResult(self.findings.level, self.violation)


class EntryPolicy:
    """Applies the policy to the entries of a catalog.

    Data of the catalog is enough for most entries. For skills that people decided about, or that
    suppressed rules may concern, `read_revisions` reads the revisions from the index.
    """

    def __init__(self, policy: SkillPolicy, read_revisions: ReadRevisions) -> None:
        self.policy = policy
        self._read_revisions = read_revisions

    @classmethod
    def of_catalog(
        cls, settings: Settings, catalog: Catalog, read_revisions: ReadRevisions, reviews: Reviews
    ) -> EntryPolicy:
        """Return the policy of the settings and of the sources in a catalog."""
        return cls(make_policy(settings, catalog.list_sources(), reviews), read_revisions)

    def judge(self, entries: Iterable[CatalogEntry]) -> dict[str, PolicyResult]:
        """Return the results of entries by skill id."""
        found, contested = {}, {}
        for entry in entries:
            result = self._judge_by_catalog(entry)
            found[entry.skill_id] = result
            known = (entry.skill_id, result.violation, entry.content_hash)
            if entry.state is SkillState.PUBLISHED and self.policy.needs_record(*known):
                contested[RevisionKey(entry.skill_id, entry.seq)] = entry
        stored = self._read_revisions(list(contested)) if contested else {}
        for key, revision in stored.items():
            rescanned = rescan_revision(revision)
            found[key.skill_id] = self.judge_revision(contested[key], rescanned).result
        return found

    def judge_one(self, entry: CatalogEntry) -> PolicyResult:
        """Return the result of one entry."""
        return self.judge([entry])[entry.skill_id]

    def _judge_by_catalog(self, entry: CatalogEntry) -> PolicyResult:
        level = self.policy.raise_level(entry.safety_level, entry.judgements)
        if entry.state is not SkillState.PUBLISHED:
            return PolicyResult(level, None)
        violation = self.policy.find_violation(
            entry.source_id, entry.safety_level, entry.licence, entry.judgements
        )
        return PolicyResult(level, violation)

    def judge_revision(self, entry: CatalogEntry, revision: StoredRevision) -> RevisionStanding:
        """Return the result of the published revision of an entry, which the current scanner has
        read (`rescan_revision`)."""
        place = (entry.skill_id, revision.content_hash, revision.parsed.record, entry.judgements)
        violation = self.policy.find_record_violation(*place)
        return RevisionStanding(self.policy.count_findings(*place), violation)
