"""Schema of the Neo4j database: numbered migrations, and a check that all have been run."""

from __future__ import annotations

import re
from importlib.resources import files

from config.errors import MisconfiguredError, TransientError
from graph.named_statements import load_statements, read_text
from graph.neo4j.client import Neo4jClient, Run

_FOLDER = ("cypher", "migrations")
_NUMBER = re.compile(r"(\d{4})_\w+\.cypher")
_MIGRATION_SECONDS = 600.0
_MIN_SERVER_VERSION = (5, 26)


def _statements() -> dict[str, str]:
    return load_statements("graph.neo4j", "cypher", "schema.cypher")


def migrations() -> dict[int, list[str]]:
    """Return migration number -> its statements, in order."""
    found = {}
    for file in files("graph.neo4j").joinpath(*_FOLDER).iterdir():
        match = _NUMBER.fullmatch(file.name)
        if match is not None:
            lines = read_text("graph.neo4j", *_FOLDER, file.name).splitlines(keepends=True)
            script = "".join(line for line in lines if not line.startswith("//"))
            parts = (part.strip() for part in script.split(";\n"))
            found[int(match[1])] = [part for part in parts if part]
    return dict(sorted(found.items()))


def migrate(server: Neo4jClient) -> None:
    """Run the missing migrations.

    If several processes call this at once, one migrates and the others wait. The next process
    repeats an interrupted migration, which is safe since every statement is idempotent. Raises
    MisconfiguredError if the schema is of a newer skillbus or the server is too old.
    """
    _check_server(server)
    sql = _statements()
    known = migrations()
    if schema_version(server) == max(known):
        return
    server.write(sql["meta_constraint"])
    server.write(sql["schema_node"])

    def work(run: Run, retried: bool) -> None:
        del retried
        version = int(run(sql["lock_schema"])[0][0])
        if version > max(known):
            raise _newer_error(server, version, max(known))
        for number in (number for number in known if number > version):
            # Run outside this transaction, which only holds the lock, since Neo4j does not allow
            # changes of schema and data in one transaction.
            for statement in known[number]:
                server.write(statement)
            server.run_transaction(
                lambda run, _: run(sql["await_indexes"], seconds=int(_MIGRATION_SECONDS)),
                _MIGRATION_SECONDS,
            )
            run(sql["set_schema"], version=number)

    server.run_transaction(work, _MIGRATION_SECONDS)


def check(server: Neo4jClient) -> None:
    """Raise MisconfiguredError unless the schema is that of this version of skillbus."""
    version = schema_version(server)
    wanted = max(migrations())
    if version == 0:
        _check_server(server)
        raise MisconfiguredError(
            f"Neo4j at {server.address} holds no library yet: start a worker, which creates "
            "the schema, and ingest a source"
        )
    if version < wanted:
        raise MisconfiguredError(
            f"Neo4j at {server.address} has schema {version}, this version of skillbus reads "
            f"{wanted}: start a worker of this version, which migrates it"
        )
    if version > wanted:
        raise _newer_error(server, version, wanted)


def schema_version(server: Neo4jClient) -> int:
    """Return the number of the last migration that was run, 0 if none."""
    return int(server.read(_statements()["schema_version"])[0][0])


def server_version(server: Neo4jClient) -> tuple[str, str]:
    """Return version and edition of the server."""
    found = server.read(_statements()["components"])
    if not found:
        raise TransientError(f"Neo4j at {server.address} does not report its version")
    version, edition = found[0]
    return str(version), str(edition)


def _newer_error(server: Neo4jClient, version: int, known: int) -> MisconfiguredError:
    """Return the error for a schema of a newer skillbus."""
    return MisconfiguredError(
        f"Neo4j at {server.address} has schema {version}, this version of skillbus knows {known}: "
        "upgrade skillbus, or name another database with servers.neo4j_database"
    )


def _check_server(server: Neo4jClient) -> None:
    version, _ = server_version(server)
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _MIN_SERVER_VERSION:
        minimum = ".".join(map(str, _MIN_SERVER_VERSION))
        raise MisconfiguredError(
            f"Neo4j at {server.address} is {version}: {minimum} or later is needed"
        )
