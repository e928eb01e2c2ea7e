"""Published revision of each skill, as a mapping whose changes do not copy all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from typing_extensions import override

_MIN_MERGED = 1_000
_MERGED_SHARE = 0.02
"""Share of the skills above which changes are merged into a new mapping."""


class Pointers(Mapping[str, int]):
    """skill_id -> published seq; never changes.

    changes: differences from `base`, 0 for a withdrawn skill.
    """

    def __init__(self, base: Mapping[str, int], changes: Mapping[str, int] | None = None) -> None:
        self._base = base
        self._changes = changes or {}
        removed = sum(not seq and name in base for name, seq in self._changes.items())
        added = sum(bool(seq) and name not in base for name, seq in self._changes.items())
        self._size = len(base) + added - removed

    def with_changes(self, changes: Mapping[str, int]) -> Pointers:
        """Return the pointers after these changes, 0 for a withdrawn skill.

        The time depends on the number of recent changes, not on the size of the library.
        """
        together = {**self._changes, **changes}
        if len(together) <= max(_MIN_MERGED, _MERGED_SHARE * len(self._base)):
            return Pointers(self._base, together)
        merged = {**self._base, **together}
        return Pointers({name: seq for name, seq in merged.items() if seq})

    @override
    def __getitem__(self, skill_id: str) -> int:
        seq = self._changes.get(skill_id)
        if seq is None:
            return self._base[skill_id]
        if not seq:
            raise KeyError(skill_id)
        return seq

    @override
    def get(self, skill_id: str, default: Any = None) -> Any:
        """Return a skill's seq. Defined for speed: a query calls it a thousand times, and the
        inherited method works by exceptions."""
        seq = self._changes.get(skill_id)
        if seq is None:
            return self._base.get(skill_id, default)
        return seq or default

    @override
    def __contains__(self, skill_id: object) -> bool:
        return self.get(cast(str, skill_id)) is not None

    @override
    def __iter__(self) -> Iterator[str]:
        changes = self._changes
        yield from (name for name in self._base if changes.get(name) != 0)
        yield from (name for name, seq in changes.items() if seq and name not in self._base)

    @override
    def __len__(self) -> int:
        return self._size
