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
    LinkPlace,
    LinkType,
    Publication,
    RevisionScan,
    SafetyRecord,
    SkillState,
    Source,
    SourceAccess,
)
from skills.judgement import Judgement
from skills.record import ParsedSkill, RevisionKey


class Catalog(Protocol):
    """Sources, the state and published revision of every skill, and the change feed."""

    # -- sequence numbers and sources
    def allocate_sequence(self, count: int) -> range:
        """Take `count` numbers from the one counter, which is never reset."""
        ...

    def last_sequence(self) -> int:
        """The highest number allocated so far, 0 when there is none."""
        ...

    def save_source(self, source: Source) -> None:
        """Insert or update a source; raises UsageError when its id has another kind or root."""
        ...

    def list_sources(self) -> list[Source]:
        """All sources, by id."""
        ...

    def read_access(self) -> SourceAccess:
        """All sources, by id, and the groups of those that have some. One round trip."""
        ...

    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        """Set the groups of a source, whether or not it is there; without groups it has those of
        the settings. The epoch moves on, so that those who poll it read the groups again."""
        ...

    def delete_source(self, source_id: str) -> None:
        """Delete a source and its file signatures, but not its groups; raises UsageError while it
        has published skills."""
        ...

    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        """Skill path -> signature of its files at the last sync."""
        ...

    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """Save the signatures of the paths `seen`, delete those of the paths `gone`."""
        ...

    # -- skills
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        """Raise requested_seq of each (skill_id, source_id, path) to `seq`; adds unknown skills."""
        ...

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Entries by id (all when None), removed ones included, ordered by skill_id."""
        ...

    def get_safety_records(self, skill_ids: Sequence[str]) -> list[SafetyRecord]:
        """What a policy asks of those of the skills that are published, in any order.

        A query asks it of a thousand skills: less is read than of entries.
        """
        ...

    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        """Entries of a source whose path is `path` or lies below it; "" is the whole source."""
        ...

    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        """The first `limit` entries that match and whose skill_id sorts after `after`, by it.

        The cost depends on `limit`, not on how many entries come before or after; with a language,
        licence, level, scripts or embedded, also on how many are passed over.
        """
        ...

    def count_entries(self) -> list[EntryCount]:
        """How many entries there are with each combination of the values that are counted.

        The cost depends on the size of the library.
        """
        ...

    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        """By source, how many of its skills are in each state. One round trip."""
        ...

    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Move pointers forward and mark the skills for linking; atomic for each skill at least.

        Returns the keys whose pointer moved. A seq that is not above the skill's pointer and its
        last unchanged ingest, removal or failure is stale and changes nothing. Where a skill is
        given more than once, only its highest seq counts.
        """
        ...

    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        """Clear ingest requests up to `seq`: ingest read there what is already published.

        hashes: the content hash that each ingest read; where the published one differs by now,
        the request stays.
        """
        ...

    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        """Withdraw pointers older than the key's seq; returns the skills that were withdrawn."""
        ...

    def record_failures(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record (key, source_id, path, reason); withdraws an older pointer."""
        ...

    def record_held(self, held: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record skills that wait for a person, as `record_failures` does."""
        ...

    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        """Entries with an open ingest request, oldest first."""
        ...

    def list_awaiting_vectors(self, limit: int) -> list[RevisionKey]:
        """Published revisions without skill vectors, most used first."""
        ...

    def mark_vectors_stored(self, keys: Sequence[RevisionKey]) -> None:
        """Record that their skill vectors are stored; a key that is not published is ignored."""
        ...

    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        """Published revisions without section vectors, most used first."""
        ...

    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        """Record that their sections have vectors; a key that is not published is ignored."""
        ...

    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        """Published revisions whose safety_level is of an older scanner, or whose rules and scripts
        are not known, by skill_id."""
        ...

    def save_scans(self, scans: Mapping[RevisionKey, RevisionScan], scanner_version: int) -> None:
        """Save what a version of the scanner found in published revisions; those that
        `list_scanned_before` does not list, and those that a newer version scanned, are ignored."""
        ...

    def get_rules_version(self) -> int:
        """The scanner version by which the rules of all published skills are known, as
        `set_rules_version` stored it; 0 at first."""
        ...

    def set_rules_version(self, scanner_version: int) -> None:
        """Store by which scanner version all rules are known; 0 if some are not."""
        ...

    def save_judgements(
        self, model: str, judgements: Mapping[str, tuple[str, Judgement | None]]
    ) -> None:
        """Set a model's second opinion about published skills: by skill_id, the content hash that
        it is about, and None where it raises nothing. A skill with other content is ignored.

        A new revision with the same content keeps it. The change feed names the skills as relinked.
        """
        ...

    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        """Count one more use of each skill by a bundle; writes by skill_id, so that concurrent
        writers cannot deadlock."""
        ...

    def prune_removed(self, age_seconds: float) -> list[str]:
        """Delete the rows of skills removed longer ago than this, unless an ingest request is open
        or a link is left; returns their ids.

        Until then, their seq marks late events as stale.
        """
        ...

    def overwrite_deleted(self) -> None:
        """Leave nothing readable of what withdrawn skills were, as far as a client of the store
        can."""
        ...

    def get_counts(self) -> dict[str, int]:
        """Number of skills by state, and `with_vectors`, `paged`, `unlinked`, `waiting` and
        `links`."""
        ...

    def get_epoch(self) -> int:
        """The epoch to begin polling `get_changes_since` with, where earlier changes do not count.
        One round trip, whatever the size of the library."""
        ...

    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """Changes after `epoch`; 0 gives every pointer.

        Polling with the epoch of the last answer misses no change, whatever is written in the
        meantime, and never returns an older seq than before. A change may be returned twice:
        apply it idempotently.
        """
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class LinkStore(Protocol):
    """Links between skills, and what linking reads and writes."""

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """The links of each skill, at most `fan_out` neighbours, conflicts before all others; every
        id has a row. One round trip."""
        ...

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """By skill, every link that starts or ends at it, or that it owns; every id has a list."""
        ...

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Every link that starts and ends at one of these skills. One round trip."""
        ...

    def mark_for_linking(self, skill_ids: Sequence[str]) -> None:
        """Mark these skills for linking again; those that are not published are ignored."""
        ...

    def get_link_origin(self) -> str:
        """What links were made from in addition to the library, as `set_link_origin` stored it.

        "" at first.
        """
        ...

    def set_link_origin(self, origin: str) -> None:
        """Store what links are made from in addition to the library."""
        ...

    def get_learned_state(self) -> str:
        """Which outcomes links were learned from so far, as `set_learned_state` stored it.

        "" at first.
        """
        ...

    def set_learned_state(self, state: str) -> None:
        """Store which outcomes links were learned from."""
        ...

    def dismiss_link(self, dismissed: DismissedLink) -> None:
        """Delete a link, whatever it comes from, and leave it out of every later `replace_links`.

        Its owners and ends are marked for linking, so that others take its place. Dismissed again,
        it has the new reason and time. Survives the removal of either skill.
        """
        ...

    def list_dismissed_links(self) -> list[DismissedLink]:
        """All dismissed links, by source, target and type."""
        ...

    def restore_link(self, place: LinkPlace) -> bool:
        """Take a dismissal back; False if there is none. The skills that may own the link are
        marked for linking: both ends, and those that mention one of them."""
        ...

    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        """Skills marked for linking with the epoch of their mark, oldest first."""
        ...

    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        """The features of these skills; those that are not published are left out."""
        ...

    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        """Normalised name -> published skills of the source with it; unused names are left out."""
        ...

    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """The links that these published skills own; other skills are left out."""
        ...

    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        """The lowest weight among the links of a type that start at their owner, by owner; skills
        with fewer than `count` of these are left out."""
        ...

    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        """Replace all links that each owner has; clear the marks whose epoch is still the same.

        Dismissed links are left out.
        An owner that is not published gets none. A link to a skill that was withdrawn in the
        meantime is left out, and its owner marked again. Of several with one (owner, source,
        target, type) the heaviest is kept, of these the one whose evidence sorts first.
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
        """Replace the skill's passage nodes by this revision's; False when it is not published."""
        ...
