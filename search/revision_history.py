"""Protocol of the history: superseded revisions of skills, separate from the search index.

The index holds the revisions that queries find; the history holds earlier ones. They are read by
skill and seq and never searched, so that they take no places of candidates and need no vectors.
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
    """A skill that stays at one content, regardless of its source.

    seq, content_hash: of the revision that has the content. pinned: seconds since the epoch.
    """

    skill_id: str
    seq: int
    content_hash: str
    reason: str
    pinned: float


class HistoryLimits(NamedTuple):
    """Limits of the history per skill: number of revisions, and bytes as stored."""

    revisions: int
    bytes: int


class RevisionSize(NamedTuple):
    """Data of a revision by which `select_kept` decides. size: in bytes, as stored."""

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
        """Store a revision that is held back; return the seq of its content.

        If the newest stored revision has the same content and a seq above `above`, nothing is
        stored and its seq is returned. So if two callers hold the same content at once, the first
        determines its seq.
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
        """Remove the pin of a skill; False without a pin."""
        ...

    def get_pins(self, skill_ids: Sequence[str] | None = None) -> dict[str, Pin]:
        """Return the pins of these skills, by default all; skills without a pin are left out."""
        ...

    def forget(self, skill_ids: Sequence[str]) -> int:
        """Delete all revisions and pins of these skills; returns how many revisions there were."""
        ...

    def overwrite_deleted(self) -> None:
        """Make deleted content unreadable; may take time in proportion to the store."""
        ...

    def read_all(self) -> Iterator[KeptRevision]:
        """Yield every revision, by skill_id and seq; revisions written meanwhile may be missing."""
        ...

    def max_seq(self) -> int:
        """Return the highest seq of any revision, 0 without any."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def select_kept(revisions: Iterable[RevisionSize], limits: HistoryLimits) -> set[int]:
    """Return the seqs of the revisions of one skill to keep.

    Of consecutive revisions with the same content only the newest counts, since a completion by a
    language model publishes the same content again. Of these, the newest are kept up to both
    limits, and the very newest regardless of its size. The result does not depend on the order of
    arrival as long as no revision arrives between two of one content.
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
