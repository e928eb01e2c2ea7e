"""Regular expressions that are searched for only in texts with the words that they require."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

from skills.required_words import Choice, find_required_words, replace_white_space


@lru_cache(maxsize=2)  # several patterns are searched for in a text, one after the other
def _space_out(text: str) -> str:
    # White space other than spaces is not printable.
    return text if text.isprintable() else replace_white_space(text)


class FilteredPattern:
    """A regular expression and the words that its matches hold; both are read on first use."""

    def __init__(self, regex: str, flags: int = 0) -> None:
        self._regex, self._flags = regex, flags
        self._ignores_case = bool(flags & re.IGNORECASE)

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
        if self._ignores_case:
            if not spaced.isascii():
                return True
            spaced = spaced.lower()
        # Calls of `any` and `map` would take longer than these searches for a few words.
        for choice in self.choices:
            for word in choice:
                if word in spaced:
                    break
            else:
                return False
        return True

    def search(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self.pattern.search(text) if self.may_match(_space_out(text)) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As `re.Pattern.finditer`."""
        return self.pattern.finditer(text) if self.may_match(_space_out(text)) else iter(())

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.match`, which looks at the start only and needs no filter."""
        return self.pattern.match(text)
