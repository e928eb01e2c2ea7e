"""Regular expressions that are searched for only in texts with the words that they require."""

from __future__ import annotations

import re
from functools import cached_property

from skills.required_words import Choice, find_required_words


class FilteredPattern:
    """A regular expression and the words that its matches hold; both are read on first use."""

    def __init__(self, regex: str, flags: int = 0) -> None:
        self._regex, self._flags = regex, flags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled."""
        return re.compile(self._regex, self._flags)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The words of `find_required_words`."""
        return find_required_words(self._regex, self._flags)

    def may_match(self, spaced: str) -> bool:
        """Whether a text may hold a match; its white space must be spaces
        (`replace_white_space`)."""
        holds = spaced.__contains__
        return all(any(map(holds, choice)) for choice in self.choices)
