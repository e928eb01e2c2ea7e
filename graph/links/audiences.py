"""Audiences: sets of sources that the same readers see.

A skill keeps its best few links of a type to each audience. Thus links to skills that a reader may
not see do not displace links that it may see: the reader sees the links that a library of only its
visible skills would have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from skills.record import get_source_id


class Audiences:
    """Maps skills to audiences: the groups of their source, "" for the default of the settings.

    groups: source id -> groups, as in `SourceAccess`.
    """

    def __init__(self, groups: Mapping[str, Sequence[str]]) -> None:
        self._by_source = {
            source_id: " ".join(sorted(names)) for source_id, names in groups.items()
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Audiences) and self._by_source == other._by_source

    def __bool__(self) -> bool:
        """Return whether there may be more than one audience."""
        return bool(self._by_source)

    def of(self, skill_id: str) -> str:
        """Return the audience of a skill."""
        return self._by_source.get(get_source_id(skill_id), "") if self._by_source else ""

    def split(self, skill_ids: Sequence[str]) -> Iterator[list[int]]:
        """Yield, for each audience with skills among these, the indexes of its skills."""
        if not self._by_source:
            if skill_ids:
                yield list(range(len(skill_ids)))
            return
        places: dict[str, list[int]] = {}
        for place, skill_id in enumerate(skill_ids):
            places.setdefault(self.of(skill_id), []).append(place)
        yield from places.values()

    def digest(self) -> str:
        """Return a hash of the audiences, "" if there is only one."""
        if not self._by_source:
            return ""
        return hashlib.sha256(json.dumps(sorted(self._by_source.items())).encode()).hexdigest()[:16]


ONE_AUDIENCE = Audiences({})
