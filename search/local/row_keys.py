"""Maps row numbers of the store, as the lexical engines return them, to revisions."""

from __future__ import annotations

from collections.abc import Sequence

from search.local.forward_pack_follower import ForwardPackFollower
from skills.record import RevisionKey


class RowKeys(ForwardPackFollower):
    """Reads keys from the pack of forward records, and keys of newer rows from the store.

    The pack is faster: a row of the store takes kilobytes, so that almost every key is on a page of
    its own.
    """

    def find(self, numbers: Sequence[int]) -> dict[int, RevisionKey]:
        """Return revisions by row number. Deleted revisions are left out, unless the pack still has
        them."""
        self.refresh()
        found = {} if self._pack is None else self._pack.keys_of(numbers)
        return found | self._store.keys_of([number for number in numbers if number not in found])
