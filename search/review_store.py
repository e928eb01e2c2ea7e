"""Protocol of the review store: decisions of people about skills, which are stored nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skills.review import ReviewRecord, Reviews, ReviewSlot


class ReviewStore(Protocol):
    """Records of reviews by skill; shared by threads and processes.

    Every implementation passes the contract suite in `tests/contract/test_review_store.py`. Methods
    raise TransientError when the store is busy, full or unreachable, PermanentError when it is
    damaged.
    """

    def save(self, records: Sequence[ReviewRecord], *, only_new: bool = False) -> None:
        """Store records durably; each replaces the record in its slot.

        only_new: leave slots that have a record unchanged, except that a waiting update is replaced
        by the same update with a higher seq.
        """
        ...

    def remove(self, skill_id: str, slots: Sequence[ReviewSlot]) -> list[ReviewRecord]:
        """Delete the records in these slots of a skill; returns the deleted records."""
        ...

    def get(self, skill_ids: Sequence[str]) -> Reviews:
        """Return the records of these skills, by skill in the order of their slots."""
        ...

    def get_all(self) -> Reviews:
        """Return all records, by skill, as of the version of the result or later."""
        ...

    def get_version(self) -> int:
        """Return a number that every change of `POLICY_KINDS` raises. Cheap, since every query
        reads it."""
        ...

    def forget(self, skill_ids: Sequence[str]) -> None:
        """Delete all records of these skills."""
        ...

    def overwrite_deleted(self) -> None:
        """Make deleted content unreadable; may take time in proportion to the store."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
