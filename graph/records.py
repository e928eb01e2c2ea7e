"""Records of the catalog and the skill graph: sources, entries, publications, links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from skills.judgement import Judgement
from skills.record import RevisionKey


class SkillState(StrEnum):
    """State of a skill in the catalog. Only a published skill has a pointer.

    A held one was never published: its source is in `policy.review`, and it waits for a person.
    """

    PENDING = "pending"
    PUBLISHED = "published"
    FAILED = "failed"
    HELD = "held"
    REMOVED = "removed"


class LinkType(StrEnum):
    """Types of links between skills (spec §1)."""

    DEPENDENCY = "dependency"
    WORKFLOW = "workflow"
    SEMANTIC = "semantic"
    ALTERNATIVE = "alternative"
    CONFLICT = "conflict"
    USED_TOGETHER = "used_together"

    @property
    def is_directed(self) -> bool:
        """Whether a link of this type says something else when its ends are exchanged."""
        return self in (LinkType.DEPENDENCY, LinkType.WORKFLOW)


@dataclass(frozen=True, slots=True)
class Source:
    """Where skills come from, and the state of its last sync.

    root: an absolute directory, or for kind `git` the address of the repository. branch: "" is
    the remote's default. path: the folder that holds the skills, "" is the root. licences: the
    only ones that are accepted; empty accepts all. credential_file: file with the login.
    poll_seconds: interval between fetches, 0 takes the settings'. commit: the one that the
    catalog reflects. last_success, last_attempt: seconds since the epoch. last_error: why the
    last attempt failed, "" when it did not.
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
    """All sources, and by the id of a source the groups that it has, if it has its own.

    Groups are kept apart from sources: they can be given to one before it is added, and stay when
    it is removed.
    """

    sources: list[Source]
    groups: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A skill's row in the catalog.

    seq, content_hash: of the published revision (0 and "" without one). requested_seq: the newest
    change that ingest was requested for. has_vectors: its skill vectors are stored. embedded: its
    sections have vectors. scanner_version: the version that computed safety_level. judgements:
    second opinions about the published content, one a model; they are no part of safety_level.
    has_scripts: None while it is not known. A published entry whose requested_seq is
    above its seq waits for ingest and stays readable at seq.
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


def complete_counts(
    states: Mapping[str, int],
    without_vectors: int,
    unembedded: int,
    unlinked: int,
    waiting: int,
    links: int,
) -> dict[str, int]:
    """The answer of `Catalog.get_counts` from what a store counts fastest: what is left to do."""
    counted = {state.value: states.get(state.value, 0) for state in SkillState}
    published = counted[SkillState.PUBLISHED]
    return counted | {
        "with_vectors": max(0, published - without_vectors),
        "paged": max(0, published - unembedded),
        "unlinked": unlinked,
        "waiting": waiting,
        "links": links,
    }


class SafetyRecord(NamedTuple):
    """What a policy asks of a published revision; fields as in `CatalogEntry`."""

    skill_id: str
    seq: int
    safety_level: int
    licence: str
    scanner_version: int
    judgements: tuple[Judgement, ...]


class RevisionScan(NamedTuple):
    """What the catalog keeps of a scan of a revision. rules: ids of those that found something."""

    safety_level: int
    rules: tuple[str, ...]
    has_scripts: bool


@dataclass(frozen=True, slots=True)
class Mention:
    """A skill name that a skill declares or mentions; resolved again when that name appears or
    disappears.

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
    """A revision to publish, with what linking needs; written in one transaction.

    body_terms: the heaviest terms of the body; description_terms: the description's terms; both
    term hash -> weight of a unit vector. Weights do not depend on the library, so that the score
    of a pair does not depend on the order of arrival. Term hashes are below 2**63. has_vectors: the
    index has its skill vectors already. rules: ids of those of the scanner that found something.
    has_scripts: None if neither this nor the rules are known.
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


@dataclass(frozen=True, slots=True)
class LinkFeatures:
    """A published skill's features that links are computed from."""

    skill_id: str
    source_id: str
    path: str
    name: str
    body_terms: Mapping[int, float]
    description_terms: Mapping[int, float]
    mentions: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A typed, directed, weighted edge, owned by the skill whose text or lists it comes from."""

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


@dataclass(frozen=True, slots=True)
class DismissedLink:
    """A link that a person took out of the graph for good.

    source, target: as `place_of` orders them. dismissed: seconds since the epoch.
    """

    source: str
    target: str
    type: LinkType
    reason: str
    dismissed: float = 0.0


class LinkPlace(NamedTuple):
    """What a dismissal is about: two skills and the type of the link between them."""

    source: str
    target: str
    type: LinkType


def place_of(source: str, target: str, kind: LinkType) -> LinkPlace:
    """The place of a link: links of a type without direction are in one place both ways."""
    if not kind.is_directed and target < source:
        source, target = target, source
    return LinkPlace(source, target, kind)


def merge_duplicate_links(links: Iterable[Link]) -> list[Link]:
    """One link for each (source, target, type): the heaviest, of these the first by evidence."""
    ordered = sorted(links, key=lambda link: (-link.weight, link.evidence), reverse=True)
    return list({(*link.ends, link.type): link for link in ordered}.values())


class Neighbour(NamedTuple):
    """A link as seen from one of its ends: the skill at the other end.

    forward: whether the link leads to that skill.
    """

    skill_id: str
    type: LinkType
    forward: bool
    weight: float


@dataclass(frozen=True, slots=True)
class Adjacency:
    """A skill's links, conflicts first, then heaviest first; perhaps cut at a fan-out.

    totals: the weight sum of each (type, forward) over all links, cut ones included, so that a
    cut row loses mass into the residual and is never renormalised.
    """

    neighbours: tuple[Neighbour, ...]
    totals: Mapping[tuple[LinkType, bool], float]


class CatalogChanges(NamedTuple):
    """Changes after an epoch, up to `epoch`.

    pointers: skill_id -> published seq, 0 when withdrawn. relinked: skills whose links or
    judgements changed.
    """

    epoch: int
    pointers: dict[str, int]
    relinked: frozenset[str]
