"""A catalog as the version before rules and scripts left it."""

from __future__ import annotations

from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph


def forget_scans(graph: SkillGraph) -> None:
    """Remove what that version did not store: rules of findings, and whether there are scripts."""
    assert isinstance(graph, SqliteSkillGraph)
    with graph._database.write() as db:
        db.execute("UPDATE skills SET has_scripts = NULL")
        db.execute("DELETE FROM finding_rules")
    graph.set_rules_version(0)
