"""The catalog on a Neo4j server, for tests: one database, emptied before each."""

from __future__ import annotations

from pathlib import Path

from neo4j import GraphDatabase

from config.server_settings import ServerSettings
from graph.neo4j.store import Neo4jSkillGraph


def catalog_settings(
    url: str,
    password_file: Path | None = None,
    *,
    timeout_seconds: float = 10.0,
    user: str = "neo4j",
) -> ServerSettings:
    """Settings that name this Neo4j server; the other addresses are of no server."""
    return ServerSettings(
        broker="redis://127.0.0.1:1/0",
        elasticsearch="http://127.0.0.1:1",
        neo4j=url,
        neo4j_user=user,
        neo4j_password_file=password_file,
        timeout_seconds=timeout_seconds,
    )


def open_catalog(settings: ServerSettings, *, writable: bool = True) -> Neo4jSkillGraph:
    """The catalog, laid out."""
    graph = Neo4jSkillGraph(settings, writable=writable)
    if writable:
        graph.migrate()
    return graph


def run_cypher(settings: ServerSettings, *statements: str) -> list[list[object]]:
    """Records of the last of these statements, each a transaction of its own."""
    found: list[list[object]] = []
    password = settings.neo4j_password_file
    auth = None if password is None else (settings.neo4j_user, password.read_text().strip())
    with (
        GraphDatabase.driver(settings.neo4j, auth=auth, notifications_min_severity="OFF") as driver,
        driver.session(database=settings.neo4j_database) as session,
    ):
        for statement in statements:
            found = session.run(statement).values()
    return found


def empty_catalog(settings: ServerSettings) -> None:
    """Remove everything but the layout."""
    run_cypher(
        settings,
        "MATCH (n) WHERE NOT n:Meta CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 2000 ROWS",
        "MATCH (m:Meta) WHERE m.key <> 'schema' SET m.value = 0 REMOVE m.text",
    )


def forget_layout(settings: ServerSettings) -> None:
    """Make the database one that skillbus has never seen."""
    run_cypher(settings, "MATCH (n) CALL (n) { DETACH DELETE n } IN TRANSACTIONS OF 2000 ROWS")
    for (name,) in run_cypher(settings, "SHOW CONSTRAINTS YIELD name RETURN name"):
        run_cypher(settings, f"DROP CONSTRAINT {name}")
    for (name,) in run_cypher(
        settings, "SHOW INDEXES YIELD name, type WHERE type <> 'LOOKUP' RETURN name"
    ):
        run_cypher(settings, f"DROP INDEX {name}")
