"""Records of the catalog and the skill graph: sources, entries, publications, links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from config.errors import UsageError
from skills.judgement import Judgement
from skills.record import RevisionKey


class SkillState(StrEnum):
    """State of a skill in the catalog. Only a published skill has a pointer.

    A held skill was never published: its source is in `policy.review`, and it waits for a person.
    """

    PENDING = "pending"
    PUBLISHED = "published"
    FAILED = "failed"
    HELD = "held"
    REMOVED = "removed"


class LinkType(StrEnum):
    """Types of links between skills."""

    DEPENDENCY = "dependency"
    WORKFLOW = "workflow"
    SEMANTIC = "semantic"
    ALTERNATIVE = "alternative"
    CONFLICT = "conflict"
    USED_TOGETHER = "used_together"

    @property
    def is_directed(self) -> bool:
        """Whether the direction of a link of this type matters."""
        return self in (LinkType.DEPENDENCY, LinkType.WORKFLOW)


class LinkInput(StrEnum):
    """Inputs of linking other than the library; the values are keys in the stores.

    SETTINGS: verdicts of the language model that count, and groups of sources. OUTCOMES: outcomes
    from which links are learned.
    """

    SETTINGS = "link_origin"
    OUTCOMES = "learned_state"


@dataclass(frozen=True, slots=True)
class Source:
    """A source of skills, with the state of its last sync.

    root: an absolute directory, or for kind `git` the address of the repository. branch: "" is the
    remote's default. path: folder with the skills, "" is the root. licences: accepted licences,
    empty for all. credential_file: file with the login. poll_seconds: interval between fetches, 0
    for that of the settings. commit: the commit that the catalog reflects. last_success,
    last_attempt: seconds since the epoch. last_error: reason why the last attempt failed, "" if it
    did not fail.
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


class SourceAccess(NamedTuple):
    """All sources, and the groups of sources that have their own, by source id.

    Groups are stored separately from sources: they can be set before a source is added, and stay
    when it is removed.
    """

    sources: list[Source]
    groups: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A skill's row in the catalog.

    seq, content_hash: those of the published revision (0 and "" without one). requested_seq: newest
    change for which ingest was requested. has_vectors: whether its skill vectors are stored.
    embedded: whether its sections have vectors. scanner_version: scanner that computed
    safety_level. judgements: of language models about the published content, one per model; they
    are not part of safety_level. has_scripts: None if unknown. parser_version: parser that made the
    published revision, 0 if unknown. A published entry that awaits ingest stays readable at seq.
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
    has_vectors: bool = False
    embedded: bool = False
    updated: float = 0.0
    scanner_version: int = 0
    judgements: tuple[Judgement, ...] = ()
    has_scripts: bool | None = None
    parser_version: int = 0

    @property
    def key(self) -> RevisionKey:
        """The published revision; its seq is 0 without one."""
        return RevisionKey(self.skill_id, self.seq)

    @property
    def place(self) -> tuple[str, str, str]:
        """Skill id, source id and path, as `Catalog.request_ingest` takes them."""
        return (self.skill_id, self.source_id, self.path)

    @property
    def awaits_ingest(self) -> bool:
        """Whether ingest was requested and has not been done since."""
        return self.requested_seq > self.seq


def check_same_source(source: Source, known: Source) -> None:
    """Raise UsageError if a source has the id of a known one, but another kind or root."""
    if (source.kind, source.root) != (known.kind, known.root):
        raise UsageError(
            f"source {known.source_id} is already {known.kind} {known.root}: "
            "choose another id, or remove that source first"
        )


def complete_counts(
    states: Mapping[str, int],
    without_vectors: int,
    unembedded: int,
    unlinked: int,
    waiting: int,
    links: int,
) -> dict[str, int]:
    """Return the result of `Catalog.get_counts`, from counts of open work, which are fast."""
    counted = {state.value: states.get(state.value, 0) for state in SkillState}
    published = counted[SkillState.PUBLISHED]
    return counted | {
        "with_vectors": max(0, published - without_vectors),
        "embedded": max(0, published - unembedded),
        "unlinked": unlinked,
        "waiting": waiting,
        "links": links,
    }


class SafetyRecord(NamedTuple):
    """Values of a published revision that the policy needs; fields as in `CatalogEntry`."""

    skill_id: str
    seq: int
    safety_level: int
    licence: str
    scanner_version: int
    judgements: tuple[Judgement, ...]


class RevisionScan(NamedTuple):
    """Result of a scan of a revision, for the catalog. rules: ids of rules with findings."""

    safety_level: int
    rules: tuple[str, ...]
    has_scripts: bool


@dataclass(frozen=True, slots=True)
class Mention:
    """Name of another skill that a skill declares or mentions.

    It is resolved again when a skill of that name appears or disappears. kind: `depends`,
    `conflicts`, `related`, `quoted`, `file` (a relative path into another skill's folder) or
    `order` (part of a sequence; `position` is its place).
    """

    name: str
    kind: str
    line: int
    evidence: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """A revision to publish, with the data that linking needs; written in one transaction.

    body_terms: heaviest terms of the body. description_terms: terms of the description. Both map
    term hashes below 2**63 to weights of a unit vector. Weights do not depend on the library, so
    that the score of a pair does not depend on the order of arrival. has_vectors: whether the index
    already has its skill vectors. rules: ids of scanner rules with findings. has_scripts: None if
    neither this nor the rules are known. replaces: if it is not 0, the revision is published only
    in place of the one with this seq, and only while no ingest is requested: an ingest that runs
    may have read newer content under a lower seq.
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
    has_vectors: bool = False
    rules: tuple[str, ...] = ()
    has_scripts: bool | None = None
    parser_version: int = 0
    replaces: int = 0


class Withdrawal(NamedTuple):
    """A pointer to withdraw, and the state of the skill afterwards, with its reason or ""."""

    key: RevisionKey
    source_id: str
    path: str
    state: SkillState
    reason: str


@dataclass(frozen=True, slots=True)
class LinkFeatures:
    """Features of a published skill from which its links are computed."""

    skill_id: str
    source_id: str
    path: str
    name: str
    body_terms: Mapping[int, float]
    description_terms: Mapping[int, float]
    mentions: tuple[Mention, ...]


class LinkKey(NamedTuple):
    """Key by which links of any owner are dismissed: their ends and their type."""

    source: str
    target: str
    type: LinkType


def link_key(source: str, target: str, kind: LinkType) -> LinkKey:
    """Return the key of a link; the ends of an undirected type are sorted."""
    if not kind.is_directed and target < source:
        source, target = target, source
    return LinkKey(source, target, kind)


@dataclass(frozen=True, slots=True)
class Link:
    """A typed, directed, weighted edge, owned by the skill from whose text or lists it comes."""

    owner: str
    source: str
    target: str
    type: LinkType
    weight: float
    evidence: str

    @property
    def ends(self) -> tuple[str, str]:
        """Source and target."""
        return (self.source, self.target)

    @property
    def key(self) -> LinkKey:
        """The key of the link; the ends of an undirected type are sorted."""
        return link_key(self.source, self.target, self.type)

    @property
    def owned_key(self) -> tuple[str, str, str, LinkType]:
        """Owner, source, target and type: the stores have one link of each."""
        return (self.owner, self.source, self.target, self.type)


@dataclass(frozen=True, slots=True)
class DismissedLink:
    """A link that a person removed from the graph permanently.

    source, target: in the order of `link_key`. dismissed: seconds since the epoch.
    """

    source: str
    target: str
    type: LinkType
    reason: str
    dismissed: float = 0.0

    @property
    def key(self) -> LinkKey:
        """The key of the link; the ends of an undirected type are sorted."""
        return link_key(self.source, self.target, self.type)


def merge_duplicate_links(links: Iterable[Link]) -> list[Link]:
    """Keep one link per owner, source, target and type: the heaviest; on a tie, the first by
    evidence."""
    ordered = sorted(links, key=lambda link: (-link.weight, link.evidence), reverse=True)
    return list({link.owned_key: link for link in ordered}.values())


class Neighbour(NamedTuple):
    """The other end of a link, as seen from one of its ends.

    forward: whether the link leads to this neighbour.
    """

    skill_id: str
    type: LinkType
    forward: bool
    weight: float


@dataclass(frozen=True, slots=True)
class Adjacency:
    """A skill's links, conflicts first, then heaviest first; perhaps cut at a fan-out.

    totals: sum of weights of each (type, forward) over all links, including cut links. Thus the
    missing mass of a cut row goes to the residual, and the row is never renormalised.
    """

    neighbours: tuple[Neighbour, ...]
    totals: Mapping[tuple[LinkType, bool], float]


NO_LINKS = Adjacency((), {})
"""Row of a skill without links."""


class CatalogChanges(NamedTuple):
    """Changes after an epoch, up to `epoch`.

    pointers: skill_id -> published seq, 0 if withdrawn. relinked: skills whose links or judgements
    changed.
    """

    epoch: int
    pointers: dict[str, int]
    relinked: frozenset[str]
