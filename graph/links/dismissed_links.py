"""Look-up of dismissed links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graph.records import DismissedLink, Link, LinkType, link_key


class DismissedLinks:
    """The links that a person dismissed."""

    def __init__(self, dismissed: Iterable[DismissedLink]) -> None:
        self._keys = {one.key for one in dismissed}
        self._counts = Counter(end for key in self._keys for end in key[:2])

    def covers(self, source: str, target: str, kind: LinkType) -> bool:
        """Return whether the link from `source` to `target` is dismissed."""
        return bool(self._keys) and link_key(source, target, kind) in self._keys

    def count(self, skill_id: str) -> int:
        """Return the number of dismissed links with a skill."""
        return self._counts[skill_id]

    def drop_from(self, links: Iterable[Link]) -> list[Link]:
        """Return the links that are not dismissed."""
        return [link for link in links if not self.covers(*link.ends, link.type)]
