"""Access to skills by groups of sources and readers.

A reader sees the skills of every source with which it shares a group.
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
"""Maximum groups of a source."""

GroupName = Annotated[str, Field(max_length=100, pattern=f"^{GROUP_PATTERN}$")]

_GROUP = re.compile(GROUP_PATTERN)


def is_group(name: str) -> bool:
    """Return whether `name` is a valid name of a group."""
    return _GROUP.fullmatch(name) is not None


def parse_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of groups, sorted and without repetitions.

    Raises UsageError for an invalid name, or for more than MAX_GROUPS names.
    """
    groups = tuple(sorted(set(names)))
    for name in groups:
        if not is_group(name):
            raise UsageError(
                f"{name[:100]!r} is not a group name: up to 100 letters, digits, `.`, `_`, `@`, "
                "`:`, `/`, `+`, `-`, the first a letter or digit"
            )
    if len(groups) > MAX_GROUPS:
        raise UsageError(f"{len(groups)} groups; at most {MAX_GROUPS} are allowed")
    return groups


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of skills, with its groups. groups: None for a reader who sees everything."""

    groups: frozenset[str] | None

    @classmethod
    def of(cls, groups: Iterable[str]) -> Self:
        """Return a reader with these groups and the group `everyone`."""
        return cls(frozenset(groups) | {EVERYONE})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the reader of a text form; "" is a reader in the group `everyone` only."""
        return cls(None) if text == ALL_GROUPS else cls.of(text.split())

    def to_text(self) -> str:
        """Return the text form that events record: groups separated by spaces, or `*`."""
        if self.groups is None:
            return ALL_GROUPS
        return " ".join(sorted(self.groups - {EVERYONE}))

    @property
    def sees_everything(self) -> bool:
        """Whether the reader sees all sources, regardless of their groups."""
        return self.groups is None

    def shares(self, groups: Collection[str]) -> bool:
        """Return whether this reader has at least one of the groups."""
        return self.groups is None or not self.groups.isdisjoint(groups)


UNRESTRICTED = Reader(None)
"""The user of this machine, and tokens of scope admin."""

ANYONE = Reader.of(())
"""A reader without a token."""
