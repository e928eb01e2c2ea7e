"""Passages as nodes and their links as relationships, for exploring the graph.

They are a copy of passages in the search index: no query reads them, and they are written only with
the setting `servers.neo4j_passages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from graph.links.passage_links import PassageLink
from graph.neo4j.statements import WRITE_BATCH, StatementRunner
from graph.protocol import PassageProjector
from skills.batches import batches
from skills.record import ParsedSkill, RevisionKey

_PASSAGES_AT_ONCE = 500
_LINKS_AT_ONCE = 1_000


class Neo4jPassages(StatementRunner, PassageProjector):
    """`graph.protocol.PassageProjector` on Neo4j."""

    @override
    def project_passages(
        self, key: RevisionKey, parsed: ParsedSkill, links: Sequence[PassageLink]
    ) -> bool:
        """Idempotent, and may be interrupted at any point: missing passages are written in batches,
        and passages of other revisions are deleted last."""
        skill_id, seq = key
        about = {"skill_id": skill_id, "seq": seq}
        rows = [_passage_row(parsed, place) for place in range(len(parsed.passages))]
        for some in batches(rows, _PASSAGES_AT_ONCE):
            if not self._write("put_passages", rows=some, **about)[0][0]:
                return False
        for some in batches([_link_row(link) for link in links], _LINKS_AT_ONCE):
            self._write("put_passage_links", rows=some, **about)
        while self._write("delete_other_passages", limit=_PASSAGES_AT_ONCE, **about)[0][0]:
            pass
        return True

    def delete_passages(self, skill_ids: Sequence[str]) -> None:
        """Delete the passages of these skills."""
        for ids in batches(sorted(skill_ids), WRITE_BATCH):
            while self._write("delete_passages", ids=ids, limit=_PASSAGES_AT_ONCE)[0][0]:
                pass

    def delete_orphaned_passages(self) -> None:
        """Delete passages of skills without a pointer."""
        while left := [row[0] for row in self._read("orphaned_passages", limit=WRITE_BATCH)]:
            self.delete_passages(left)


def _passage_row(parsed: ParsedSkill, place: int) -> dict[str, Any]:
    passage = parsed.passages[place]
    heading = parsed.sections[passage.section].heading_path
    return {
        "place": passage.index,
        "shown": {
            "role": passage.role.value,
            "kind": passage.kind.value,
            "heading": " / ".join(heading),
            "first_line": passage.first_line,
            "last_line": passage.last_line,
            "tokens": passage.tokens,
        },
    }


def _link_row(link: PassageLink) -> dict[str, Any]:
    return {
        "source": link.source,
        "target": link.target,
        "type": f"PASSAGE_{link.type.name}",
        "weight": link.weight,
        "evidence": link.evidence,
    }
