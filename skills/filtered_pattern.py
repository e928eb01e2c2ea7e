"""Regular expressions that skip texts without the words that every match contains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

from skills.required_words import Choice, find_required_words, find_width, replace_white_space


@lru_cache(maxsize=2)  # several patterns are searched for in the same text, one after the other
def _space_out(text: str) -> str:
    # White space other than spaces is not printable.
    return text if text.isprintable() else replace_white_space(text)


class FilteredPattern:
    """A regular expression with the words and the width of its matches, computed on first use."""

    def __init__(self, regex: str, flags: int = 0) -> None:
        self._regex, self._flags = regex, flags
        self._ignores_case = bool(flags & re.IGNORECASE)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled."""
        return re.compile(self._regex, self._flags)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The words that every match contains, by `find_required_words`."""
        return find_required_words(self._regex, self._flags)

    @cached_property
    def width(self) -> int:
        """Maximum characters of a match."""
        return find_width(self._regex, self._flags)

    def may_match(self, spaced: str) -> bool:
        """Return whether a text may contain a match.

        Its white space must have been replaced by spaces (`replace_white_space`).
        """
        if self._ignores_case:
            if not spaced.isascii():
                return True
            spaced = spaced.lower()
        # Plain loops are faster than `any` and `map` for a few words.
        for choice in self.choices:
            for word in choice:
                if word in spaced:
                    break
            else:
                return False
        return True

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match, as `re.Pattern.search`."""
        return self.pattern.search(text) if self.may_match(_space_out(text)) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Return all matches, as `re.Pattern.finditer`."""
        return self.pattern.finditer(text) if self.may_match(_space_out(text)) else iter(())

    def match(self, text: str) -> re.Match[str] | None:
        """Return the match at the start, as `re.Pattern.match`; this needs no filter."""
        return self.pattern.match(text)
