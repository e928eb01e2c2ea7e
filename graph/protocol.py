"""Protocols of the catalog and the link store (SQLite when embedded, Neo4j when distributed).

One store implements both, since publishing and withdrawing a skill changes its links in the same
transaction. The catalog's pointer skill_id -> seq is the commit point of ingest: it only moves
forward, and readers see exactly the revisions that it names. Every implementation passes the
contract suite in `tests/contract/test_skill_graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from graph.entry_filter import EntryCount, EntryFilter
from graph.links.passage_links import PassageLink
from graph.records import (
    Adjacency,
    CatalogChanges,
    CatalogEntry,
    DismissedLink,
    Link,
    LinkFeatures,
    LinkInput,
    LinkKey,
    LinkType,
    Publication,
    RevisionScan,
    SafetyRecord,
    SkillState,
    Source,
    SourceAccess,
    Withdrawal,
)
from skills.judgement import Judgement
from skills.record import ParsedSkill, RevisionKey


class Catalog(Protocol):
    """Sources, the state and published revision of every skill, and the change feed."""

    # -- sequence numbers and sources
    def allocate_sequence(self, count: int) -> range:
        """Allocate `count` numbers from the only counter, which is never reset."""
        ...

    def last_sequence(self) -> int:
        """Return the highest number allocated so far, 0 if none."""
        ...

    def save_source(self, source: Source) -> None:
        """Insert or update a source; raises UsageError if its id has another kind or root."""
        ...

    def list_sources(self) -> list[Source]:
        """Return all sources, sorted by id."""
        return self.read_access().sources

    def read_access(self) -> SourceAccess:
        """Return all sources, sorted by id, and the groups of sources, in one round trip."""
        ...

    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        """Set the groups of a source, which need not exist.

        Without groups, the source has those of the settings. The epoch is incremented, so that
        processes that poll it read the groups again.
        """
        ...

    def delete_source(self, source_id: str) -> None:
        """Delete a source and its file signatures, but not its groups.

        Raises UsageError while the source has published skills.
        """
        ...

    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        """Return skill path -> signature of its files at the last sync."""
        ...

    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """Save the signatures of the paths `seen`, delete those of the paths `gone`."""
        ...

    # -- skills
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        """Raise requested_seq of each (skill_id, source_id, path) to `seq`; add unknown skills."""
        ...

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Return entries by id (all for None), including removed skills, sorted by skill_id."""
        ...

    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        """Return the values that the policy needs of those skills that are published, in any order.

        A query reads them of a thousand skills, so they are smaller than entries.
        """
        ...

    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        """Return entries of a source at or below `path`; "" is the whole source."""
        ...

    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        """Return the first `limit` matching entries with a skill_id after `after`, sorted by it.

        The cost depends on `limit`, not on the number of entries before or after. With a language,
        licence, level, scripts or embedded, it also depends on the number of skipped entries.
        """
        ...

    def count_entries(self) -> list[EntryCount]:
        """Count the entries with each combination of the values of `EntryCount`.

        The cost depends on the size of the library.
        """
        ...

    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        """Return source -> state -> number of its skills, in one round trip."""
        ...

    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Move pointers forward and mark the skills for linking; at least atomic for each skill.

        Returns the keys whose pointer moved. A seq that is not above the skill's pointer and its
        last unchanged ingest, removal or failure is stale and changes nothing; so is a publication
        that `replaces` a revision which is not published any more, or for which an ingest is
        requested. If a skill is given more than once, only its highest seq counts.
        """
        ...

    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        """Clear ingest requests up to `seq`, since ingest read content that is already published.

        hashes: content hash that each ingest read; if that of the published revision differs by
        now, the request stays.
        """
        ...

    def withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        """Withdraw pointers older than the key's seq; return the skills that were withdrawn.

        State and reason are stored even if there is no pointer, unless the key is stale.
        """
        ...

    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        """Withdraw removed skills, as `withdraw` does."""
        return self.withdraw(
            [
                Withdrawal(key, *key.skill_id.partition(":")[::2], SkillState.REMOVED, "")
                for key in keys
            ]
        )

    def record_failures(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record failures as (key, source_id, path, reason); an older pointer is withdrawn."""
        self.withdraw([Withdrawal(*one[:3], SkillState.FAILED, one[3]) for one in failures])

    def record_held(self, held: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record skills that wait for a person, as `record_failures` does."""
        self.withdraw([Withdrawal(*one[:3], SkillState.HELD, one[3]) for one in held])

    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        """Return entries with an open ingest request, oldest first."""
        ...

    def list_awaiting_vectors(self, limit: int) -> list[RevisionKey]:
        """Return published revisions without skill vectors, most used first."""
        ...

    def mark_vectors_stored(self, keys: Sequence[RevisionKey]) -> None:
        """Record that the skill vectors are stored; keys that are not published are ignored."""
        ...

    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        """Return published revisions without section vectors, most used first."""
        ...

    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        """Record that the sections have vectors; keys that are not published are ignored."""
        ...

    def list_parsed_before(self, parser_version: int, limit: int) -> list[RevisionKey]:
        """Return at most `limit` published revisions of an older parser, in any order; not those of
        skills for which an ingest is requested."""
        ...

    def count_parsed_before(self, parser_version: int) -> int:
        """Return the number of published revisions of an older parser."""
        ...

    def mark_parsed(self, keys: Sequence[RevisionKey], parser_version: int) -> None:
        """Record that a version of the parser makes these revisions as they are stored; keys that
        are not published are ignored."""
        ...

    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        """Return published revisions to scan again, sorted by skill_id.

        Their safety_level is of an older scanner, or their rules and scripts are unknown.
        """
        ...

    def save_scans(self, scans: Mapping[RevisionKey, RevisionScan], scanner_version: int) -> None:
        """Save scans of published revisions by a version of the scanner.

        Revisions that `list_scanned_before` does not list, or that a newer version has scanned, are
        ignored.
        """
        ...

    def get_rules_version(self) -> int:
        """Return the scanner version that `set_rules_version` stored, 0 at first."""
        ...

    def set_rules_version(self, scanner_version: int) -> None:
        """Store the scanner version for which the rules of all published skills are known.

        It is 0 while the rules of some skills are unknown.
        """
        ...

    def save_judgements(
        self, model: str, judgements: Mapping[str, tuple[str, Judgement | None]]
    ) -> None:
        """Store a model's judgements about published skills.

        judgements: skill_id -> judged content hash, and the judgement, None if it does not raise
        the level. A skill with other content is ignored. A new revision with the same content keeps
        its judgements. The change feed lists the skills as relinked.
        """
        ...

    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        """Count one more use of each skill by a bundle.

        Writes in order of skill_id, so that concurrent writers cannot deadlock.
        """
        ...

    def prune_removed(self, age_seconds: float) -> list[str]:
        """Delete rows of skills that were removed more than `age_seconds` ago; return their ids.

        Rows with an open ingest request or a link are kept. Until a row is deleted, its seq shows
        that late events are stale.
        """
        ...

    def overwrite_deleted(self) -> None:
        """Overwrite the data of withdrawn skills, if the store lets a client do so."""
        ...

    def get_counts(self) -> dict[str, int]:
        """Return the number of skills by state, and `with_vectors`, `embedded`, `unlinked`,
        `waiting` and `links`."""
        ...

    def get_epoch(self) -> int:
        """Return the present epoch, from which to poll `get_changes_since` for later changes.

        Takes one round trip, regardless of the size of the library.
        """
        ...

    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """Return the changes after `epoch`; 0 gives all pointers.

        Polling with the epoch of the last answer misses no change, regardless of concurrent writes,
        and never returns an older seq than before. A change may be returned twice, so it must be
        applied idempotently.
        """
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class LinkStore(Protocol):
    """Links between skills, and the data that linking reads and writes."""

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Return the links of each skill, in one round trip; every id has a row.

        A row has at most `fan_out` neighbours, conflicts first.
        """
        ...

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """Return skill -> links that start or end at it or that it owns; every id has a list."""
        ...

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Return all links with both ends among these skills, in one round trip."""
        ...

    def mark_for_linking(self, skill_ids: Sequence[str]) -> None:
        """Mark these skills for linking; unpublished skills are ignored."""
        ...

    def get_input_version(self, which: LinkInput) -> str:
        """Return the version of an input that `set_input_version` stored, "" at first."""
        ...

    def set_input_version(self, which: LinkInput, version: str) -> None:
        """Store the version of an input from which all links have been computed."""
        ...

    def dismiss_link(self, dismissed: DismissedLink) -> None:
        """Delete a link, regardless of its origin, and leave it out of all later `replace_links`.

        Its owners and ends are marked for linking, so that other links take its place. A repeated
        dismissal replaces reason and time. A dismissal survives the removal of either skill.
        """
        ...

    def list_dismissed_links(self) -> list[DismissedLink]:
        """Return all dismissed links, sorted by source, target and type."""
        ...

    def restore_link(self, key: LinkKey) -> bool:
        """Delete a dismissal; False if there is none.

        The skills that may own the link are marked for linking: both ends, and skills that mention
        one of them.
        """
        ...

    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        """Return the skills marked for linking with the epoch of their mark, oldest first."""
        ...

    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        """Return the features of these skills; unpublished skills are left out."""
        ...

    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        """Return normalised name -> published skills of the source; unused names are left out."""
        ...

    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """Return the links that these skills own; unpublished skills are left out."""
        ...

    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        """Return owner -> lowest weight of its links of a type that start at it.

        Skills with fewer than `count` such links are left out.
        """
        ...

    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        """Replace all links of each owner; clear the marks whose epoch is still the same.

        Dismissed links are left out, and unpublished owners get no links. A link to a skill that
        was withdrawn in the meantime is left out, and its owner is marked again. Of several links
        with the same (owner, source, target, type), the heaviest is kept; on a tie, the one whose
        evidence sorts first.
        """
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class SkillGraph(Catalog, LinkStore, Protocol):
    """A store of catalog and links."""


@runtime_checkable
class PassageProjector(Protocol):
    """A store that also shows the passages of skills as nodes, for exploring the graph."""

    def project_passages(
        self, key: RevisionKey, parsed: ParsedSkill, links: Sequence[PassageLink]
    ) -> bool:
        """Replace the skill's passage nodes by this revision's; False if it is not published."""
        ...
