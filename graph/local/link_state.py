"""Part of the embedded store with data about links: dismissals, and the origin of links."""

from __future__ import annotations

from collections.abc import Mapping

from graph.local.database import Database
from graph.local.publish import Transaction, dismiss_link, restore_link
from graph.records import DismissedLink, LinkKey, LinkType, link_key


class SqliteLinkState:
    """Dismissed links and origins, for `graph.protocol.LinkStore`."""

    _database: Database
    _sql: Mapping[str, str]

    def get_link_origin(self) -> str:
        """See `LinkStore`."""
        return self._read_text("link_origin")

    def set_link_origin(self, origin: str) -> None:
        """See `LinkStore`."""
        self._write_text("link_origin", origin)

    def get_learned_state(self) -> str:
        """See `LinkStore`."""
        return self._read_text("learned_state")

    def set_learned_state(self, state: str) -> None:
        """See `LinkStore`."""
        self._write_text("learned_state", state)

    def dismiss_link(self, dismissed: DismissedLink) -> None:
        """See `LinkStore`."""
        key = dismissed.key
        with self._database.write() as db:
            transaction = Transaction(db, self._sql)
            dismiss_link(transaction, key, dismissed.reason, dismissed.dismissed)

    def list_dismissed_links(self) -> list[DismissedLink]:
        """See `LinkStore`."""
        with self._database.read() as db:
            rows = db.execute(
                "SELECT source, target, type, reason, dismissed FROM dismissed_links "
                "ORDER BY source, target, type"
            ).fetchall()
        return [
            DismissedLink(source, target, LinkType(kind), reason, dismissed)
            for source, target, kind, reason, dismissed in rows
        ]

    def restore_link(self, key: LinkKey) -> bool:
        """See `LinkStore`."""
        with self._database.write() as db:
            return restore_link(Transaction(db, self._sql), link_key(*key))

    def _read_text(self, key: str) -> str:
        with self._database.read() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            return ""
        return row[0].decode() if isinstance(row[0], bytes) else str(row[0])

    def _write_text(self, key: str, text: str) -> None:
        with self._database.write() as db:
            # As bytes, since the column makes a number of a text such as "0123".
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, text.encode()))
