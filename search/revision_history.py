"""The protocol of the history: superseded revisions of skills, apart from the search index.

The index holds what queries find. The history holds what was published before, which is read by
skill and seq and never searched, so that it neither takes the places of candidates nor has vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from skills.record import ParsedSkill, RevisionKey


@dataclass(frozen=True, slots=True)
class KeptRevision:
    """A revision as it was read from its source.

    content_hash: of all files of the folder. published: when it was published, in seconds since the
    epoch, 0 if that is not known.
    """

    key: RevisionKey
    content_hash: str
    parsed: ParsedSkill
    published: float = 0.0


@dataclass(frozen=True, slots=True)
class Pin:
    """A skill that stays at one content, whatever its source has.

    seq, content_hash: of the revision that has the content. pinned: seconds since the epoch.
    """

    skill_id: str
    seq: int
    content_hash: str
    reason: str
    pinned: float


class HistoryLimits(NamedTuple):
    """How much is kept of each skill: so many revisions, and so many bytes as stored."""

    revisions: int
    bytes: int


class RevisionSize(NamedTuple):
    """What decides whether a revision is kept. size: in bytes, as stored."""

    seq: int
    content_hash: str
    size: int


class RevisionHistory(Protocol):
    """Superseded revisions by skill; shared by threads and processes.

    Every implementation passes the contract suite in `tests/contract/test_revision_history.py`.
    Methods raise TransientError when the store is busy, full or unreachable, PermanentError when it
    is damaged.
    """

    def keep(self, revisions: Sequence[KeptRevision]) -> None:
        """Store revisions durably, then delete those beyond the limits (`select_kept`).

        A revision that is stored already is not changed, and a pinned one is not deleted.
        """
        ...

    def hold(self, revision: KeptRevision, above: int) -> int:
        """Store a revision that is held back; return the seq that its content has.

        That is the seq of the newest stored revision if that one has the same content and is above
        `above`; then nothing is stored. So of two that hold the same content at once, the first
        gives it its seq.
        """
        ...

    def find_kept(self, keys: Sequence[RevisionKey]) -> set[RevisionKey]:
        """Return which of these revisions are stored."""
        ...

    def list_revisions(self, skill_id: str) -> list[KeptRevision]:
        """Return the revisions of a skill, newest first."""
        ...

    def set_pin(self, pin: Pin) -> bool:
        """Pin a skill in place of an earlier pin; False if the revision is not stored."""
        ...

    def remove_pin(self, skill_id: str) -> bool:
        """Take a pin back; False if there is none."""
        ...

    def get_pins(self, skill_ids: Sequence[str] | None = None) -> dict[str, Pin]:
        """Return the pins of these skills, by default all; skills without one are left out."""
        ...

    def forget(self, skill_ids: Sequence[str]) -> int:
        """Delete all revisions and pins of these skills; returns how many revisions there were."""
        ...

    def overwrite_deleted(self) -> None:
        """Leave nothing readable of what was deleted; may take time in proportion to the store."""
        ...

    def read_all(self) -> Iterator[KeptRevision]:
        """Return every revision, by skill_id and seq; what is written meanwhile may be missing."""
        ...

    def max_seq(self) -> int:
        """Return the highest seq of any revision, 0 without any."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def select_kept(revisions: Iterable[RevisionSize], limits: HistoryLimits) -> set[int]:
    """The seqs of those revisions of one skill that are kept.

    Of revisions that follow each other with one content, only the newest counts: a completion by
    a language model publishes the same content again. Then the newest are kept up to both limits,
    and the first one whatever its size. The result does not depend on the order of arrival as long
    as no revision arrives between two of one content.
    """
    kept: set[int] = set()
    size, newer = 0, None
    for one in sorted(revisions, reverse=True):
        if one.content_hash == newer:
            continue
        newer = one.content_hash
        size += one.size
        if len(kept) >= limits.revisions or (kept and size > limits.bytes):
            break
        kept.add(one.seq)
    return kept
