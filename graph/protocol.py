"""What skillbus needs of a catalog and graph store (SQLite here, Neo4j when distributed).

The catalog is the record of what skills exist, at which revision and in which state. Its pointer
skill_id -> seq is the commit point of ingest: it only moves forward, and nothing else decides what
readers see. Every implementation passes the contract suite under `tests/contract`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from skills.record import ParsedSkill, RevisionKey

if TYPE_CHECKING:
    from graph.entry_filter import EntryFilter
    from graph.links.passage_links import PassageLink


class SkillState(StrEnum):
    """Where a skill stands. Only a published skill has a pointer."""

    PENDING = "pending"
    PUBLISHED = "published"
    FAILED = "failed"
    REMOVED = "removed"


class LinkType(StrEnum):
    """Types of links between skills (spec §1)."""

    DEPENDENCY = "dependency"
    WORKFLOW = "workflow"
    SEMANTIC = "semantic"
    ALTERNATIVE = "alternative"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Source:
    """Where skills come from, and how it stands with them.

    root: an absolute directory, or for kind `git` the address of the repository; branch: "" is
    the remote's own choice; path: the folder in it that holds the skills, "" is all of it.
    licences: those that are allowed, none given: any. credential_file: where the login stands.
    poll_seconds: how often it is fetched, 0: as the settings say. commit: the one that the catalog
    is in step with. last_success, last_attempt: seconds since the epoch; last_error: why the last
    attempt failed, "" when it did not.
    """

    source_id: str
    kind: str
    root: str
    last_success: float = 0.0
    branch: str = ""
    path: str = ""
    licences: tuple[str, ...] = ()
    credential_file: str = ""
    poll_seconds: float = 0.0
    commit: str = ""
    last_attempt: float = 0.0
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A skill's row in the catalog.

    seq, content_hash: of the published revision (0 and "" without one). wanted_seq: the newest
    change that ingest has been asked for. paged: its sections have vectors. scanner: the version
    that made safety_level. A published entry whose wanted_seq is above its seq waits for ingest
    and stays readable at seq.
    """

    skill_id: str
    source_id: str
    path: str
    state: SkillState
    name: str = ""
    description: str = ""
    seq: int = 0
    content_hash: str = ""
    requested_seq: int = 0
    reason: str = ""
    warnings: int = 0
    safety_level: int = 0
    tokens: int = 0
    language: str = ""
    licence: str = ""
    embedded: bool = False
    updated: float = 0.0
    scanner_version: int = 0


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that a skill declares or mentions, resolved whenever that name comes or goes.

    kind: `depends`, `conflicts`, `related`, `quoted`, `file` (a relative path into another
    skill's folder) or `order` (one in a sequence; `position` is its place).
    """

    name: str
    kind: str
    line: int
    evidence: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """What the publish stage knows of one revision; written with the pointer in one transaction.

    signature: the heaviest body terms, and description_terms the description's terms, each a
    term hash -> weight of a unit vector (weights do not depend on the library, so that pair
    scores do not depend on the order of arrival). Term hashes are below 2**63, which every store
    can keep.
    """

    key: RevisionKey
    source_id: str
    path: str
    content_hash: str
    name: str
    description: str
    warnings: int = 0
    safety_level: int = 0
    tokens: int = 0
    language: str = ""
    licence: str = ""
    scanner_version: int = 0
    mentions: tuple[Mention, ...] = ()
    body_terms: Mapping[int, float] = field(default_factory=dict)
    description_terms: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """A typed, directed, weighted edge, owned by the skill whose text or lists it comes from."""

    owner: str
    source: str
    target: str
    type: LinkType
    weight: float
    evidence: str


class Neighbour(NamedTuple):
    """One entry of a row: the skill at the other end. `forward` is the link's own direction."""

    skill_id: str
    type: LinkType
    forward: bool
    weight: float


@dataclass(frozen=True, slots=True)
class Adjacency:
    """A skill's links, heaviest first, perhaps cut at a fan-out.

    totals: the full weight sum of each (type, forward) present, whatever was cut, so that a cut
    row loses mass into the residual and is never renormalised.
    """

    neighbours: tuple[Neighbour, ...]
    totals: Mapping[tuple[LinkType, bool], float]


class CatalogChanges(NamedTuple):
    """Changes after an epoch: pointers (skill_id -> seq, 0 = withdrawn) and rows."""

    epoch: int
    pointers: dict[str, int]
    relinked: frozenset[str]


class SkillGraph(Protocol):
    """The catalog, its change feed, and the links among skills."""

    # -- sequence numbers and sources
    def allocate_sequence(self, count: int) -> range:
        """Take `count` numbers from the one counter that is never reset."""
        ...

    def save_source(self, source: Source) -> None:
        """Record a source; raises UsageError when its id is taken by another root."""
        ...

    def list_sources(self) -> list[Source]:
        """All sources, by id."""
        ...

    def delete_source(self, source_id: str) -> None:
        """Forget a source and its cursor; its skills must have been removed before."""
        ...

    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        """Skill path -> signature of what has been seen of it."""
        ...

    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """Record signatures of paths seen and forget those gone."""
        ...

    # -- the catalog
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        """Mark (skill_id, source_id, path) as wanting ingest of what was seen at `seq`."""
        ...

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Entries by id (all when None), removed ones included, ordered by skill_id."""
        ...

    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        """Entries of a source whose path is `path` or lies below it; "" is the whole source."""
        ...

    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        """The first `limit` entries of a selection whose skill_id sorts after `after`, by it.

        What a page costs depends on its size, not on how much there is before or after it.
        """
        ...

    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        """By source, how many of its skills are in each state. One round trip."""
        ...

    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Move pointers forward and mark the skills for linking, at least one skill whole at a
        time.

        Returns the keys whose pointer moved; a seq that is not above the skill's pointer, its
        last confirmation, removal or failure is stale and changes nothing. Where a skill is given
        more than once, only its highest seq counts.
        """
        ...

    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        """An ingest saw at `seq` what is published already: clear wanted marks up to it.

        hashes: the content each ingest saw; where the published content is another by now, the
        skill goes on waiting.
        """
        ...

    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        """Withdraw pointers older than the key's seq; returns the skills that were withdrawn."""
        ...

    def record_failures(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record (key, source_id, path, reason); withdraws an older pointer."""
        ...

    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        """Entries whose wanted_seq has not been served, oldest first."""
        ...

    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        """Published revisions without section vectors, most used first."""
        ...

    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        """Their sections have vectors; a key that is no longer published is ignored."""
        ...

    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        """Published revisions whose marks are of an older scanner, by skill_id."""
        ...

    def update_safety_levels(self, levels: Mapping[RevisionKey, int], scanner_version: int) -> None:
        """What a newer scanner says of published revisions: they stay as they are but for their
        safety_level. What is no longer published, or marked by as new a scanner, is ignored."""
        ...

    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        """Bundles chose these skills once more; written in one order, so that writers can wait
        for one another but never in a circle."""
        ...

    def prune_removed(self, age_seconds: float) -> int:
        """Forget skills that were removed more than `age` seconds ago, and that nothing asks for
        or links to; how many.

        Until then their numbers tell late events from new ones.
        """
        ...

    def get_counts(self) -> dict[str, int]:
        """Skills by state, and `paged`, `unlinked`, `waiting`, `links`."""
        ...

    # -- readers
    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """What changed after `epoch`; 0 gives every pointer.

        Reading on from the epoch of the last answer misses nothing, whoever writes meanwhile, and
        never goes back to an older seq. It may tell again what was told: apply it idempotently.
        """
        ...

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """Rows of these skills, at most `fan_out` neighbours each. One round trip."""
        ...

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """By skill, every link that starts or ends at it, or that it owns; every id has a list."""
        ...

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        """Every link that starts and ends at one of these skills. One round trip."""
        ...

    # -- linking
    def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
        """Skills marked for linking with the epoch of their mark, oldest first."""
        ...

    def get_link_features(self, skill_ids: Sequence[str]) -> dict[str, LinkFeatures]:
        """What linking needs of these published skills; others are left out."""
        ...

    def find_by_name(self, source_id: str, names: Sequence[str]) -> dict[str, list[str]]:
        """Published skills of a source by normalised name."""
        ...

    def find_mentioning(self, source_id: str, names: Sequence[str]) -> list[str]:
        """Published skills of a source that mention any of these normalised names."""
        ...

    def get_owned_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """The links that these published skills own; others are left out. One round trip."""
        ...

    def min_link_weight(
        self, kind: LinkType, count: int, skill_ids: Sequence[str]
    ) -> dict[str, float]:
        """The weight of the lightest link of a type that each of these skills owns, of those that
        own at least `count`."""
        ...

    def replace_links(
        self, links: Mapping[str, Sequence[Link]], marks: Sequence[tuple[str, int]]
    ) -> None:
        """Replace all links each owner has, and clear the marks that have not moved since.

        An owner that is no longer published gets none. A link whose other end was withdrawn in
        the meantime is left out, and its owner marked again. Of several with one (owner, source,
        target, type) the heaviest is kept, of those the one whose evidence sorts first.
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


@runtime_checkable
class PassageProjector(Protocol):
    """A graph that can also show the passages of skills, for whoever explores it."""

    def project_passages(
        self, key: RevisionKey, parsed: ParsedSkill, links: Sequence[PassageLink]
    ) -> bool:
        """Make the passages shown those of this revision; False when it is not published."""
        ...


@dataclass(frozen=True, slots=True)
class LinkFeatures:
    """A published skill as linking sees it."""

    skill_id: str
    source_id: str
    path: str
    name: str
    body_terms: Mapping[int, float]
    description_terms: Mapping[int, float]
    mentions: tuple[Mention, ...]
