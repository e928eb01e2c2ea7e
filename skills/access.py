"""Who may see which skills: groups of sources, and of those who ask.

A source has groups, and so has a reader. A reader sees the skills of the sources with which it
shares a group.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from config.errors import UsageError
from config.inbound_settings import ALL_GROUPS, EVERYONE, GROUP_PATTERN

MAX_GROUPS = 100
"""Groups that a source can have."""

GroupName = Annotated[str, Field(max_length=100, pattern=f"^{GROUP_PATTERN}$")]

_GROUP = re.compile(GROUP_PATTERN)


def is_group(name: str) -> bool:
    """Whether this can be the name of a group."""
    return _GROUP.fullmatch(name) is not None


def parse_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Names of groups, sorted, each once; raises UsageError for one that is not valid, or too
    many."""
    groups = tuple(sorted(set(names)))
    for name in groups:
        if not is_group(name):
            raise UsageError(
                f"{name[:100]!r} is no name of a group: up to 100 letters, digits, `.`, `_`, `@`, "
                "`:`, `/`, `+`, `-`, the first a letter or digit"
            )
    if len(groups) > MAX_GROUPS:
        raise UsageError(f"{len(groups)} groups; at most {MAX_GROUPS} are allowed")
    return groups


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads. groups: None for a reader who sees everything."""

    groups: frozenset[str] | None

    @classmethod
    def of(cls, groups: Iterable[str]) -> Self:
        """A reader with these groups, and that of everyone."""
        return cls(frozenset(groups) | {EVERYONE})

    @classmethod
    def parse(cls, text: str) -> Self:
        """A reader from its text form; "" is one without groups of its own."""
        return cls(None) if text == ALL_GROUPS else cls.of(text.split())

    def to_text(self) -> str:
        """The form in which events record a reader: groups between spaces, or `*`."""
        if self.groups is None:
            return ALL_GROUPS
        return " ".join(sorted(self.groups - {EVERYONE}))

    @property
    def sees_everything(self) -> bool:
        """Whether no source is hidden, whatever its groups."""
        return self.groups is None

    def shares(self, groups: Collection[str]) -> bool:
        """Whether this reader has one of the groups."""
        return self.groups is None or not self.groups.isdisjoint(groups)


UNRESTRICTED = Reader(None)
"""The user of this machine, and tokens of scope admin."""

ANYONE = Reader.of(())
"""A reader without a token."""
