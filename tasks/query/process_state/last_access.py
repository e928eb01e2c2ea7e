"""Which groups sources have, as this process read it last."""

from __future__ import annotations

from graph.records import SourceAccess


class LastAccess:
    """Sources and their groups for queries while the catalog does not answer: those of the moment
    from which the pointers are that are used then. Threads may share it."""

    def __init__(self) -> None:
        self._access: SourceAccess | None = None

    def remember(self, access: SourceAccess) -> SourceAccess:
        """Return the same, which is used until another is remembered."""
        self._access = access
        return access

    def get(self) -> SourceAccess | None:
        """What was remembered last, None if nothing was."""
        return self._access
