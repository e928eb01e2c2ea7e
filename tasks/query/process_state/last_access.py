"""Groups of sources, as this process read them last."""

from __future__ import annotations

from graph.records import SourceAccess


class LastAccess:
    """Sources and their groups for queries while the catalog does not answer.

    They are from the same moment as the pointers that are used then. Threads may share it.
    """

    def __init__(self) -> None:
        self._access: SourceAccess | None = None

    def remember(self, access: SourceAccess) -> SourceAccess:
        """Store the access for later calls of `get`; returns it."""
        self._access = access
        return access

    def get(self) -> SourceAccess | None:
        """Return the stored access, None if there is none."""
        return self._access
