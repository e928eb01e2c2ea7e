"""The layout of the Neo4j database: numbered migrations, and whether they have been made."""

from __future__ import annotations

import re
from importlib.resources import files

from config.errors import MisconfiguredError, TransientError
from graph.named_statements import load_statements, read_text
from graph.neo4j.client import Neo4jClient, Run

_FOLDER = ("cypher", "migrations")
_NUMBER = re.compile(r"(\d{4})_\w+\.cypher")
_SECONDS = 600.0
_LEAST_SERVER = (5, 26)


def _statements() -> dict[str, str]:
    return load_statements("graph.neo4j", "cypher", "schema.cypher")


def migrations() -> dict[int, list[str]]:
    """The statements of each migration by its number, in order."""
    found = {}
    for file in files("graph.neo4j").joinpath(*_FOLDER).iterdir():
        match = _NUMBER.fullmatch(file.name)
        if match is not None:
            lines = read_text("graph.neo4j", *_FOLDER, file.name).splitlines(keepends=True)
            script = "".join(line for line in lines if not line.startswith("//"))
            parts = (part.strip() for part in script.split(";\n"))
            found[int(match[1])] = [part for part in parts if part]
    return dict(sorted(found.items()))


def migrate(server: Neo4jClient) -> int:
    """Lay the database out as this version of skillbus needs it; returns the schema's number.

    Of several processes at once one does it, the others wait; one that dies half-way is followed
    by the next, since every statement may be run again. Raises SetupError when a newer skillbus
    has been here, or the server is too old.
    """
    sql = _statements()
    _check_server(server, sql["components"])
    known = migrations()
    if schema_version(server) == max(known):
        return max(known)
    server.write(sql["meta_constraint"])
    server.write(sql["schema_node"])

    def work(run: Run, retried: bool) -> int:
        del retried
        version = int(run(sql["lock_schema"])[0][0])
        if version > max(known):
            raise newer(server, version, max(known))
        for number in (number for number in known if number > version):
            # Beside the transaction, which only holds the lock: schema and data do not mix.
            for statement in known[number]:
                server.write(statement)
            server.run_transaction(
                lambda run, _: run(sql["await_indexes"], seconds=int(_SECONDS)), _SECONDS
            )
            run(sql["set_schema"], version=number)
        return max(known)

    return server.run_transaction(work, _SECONDS)


def check(server: Neo4jClient) -> None:
    """Raise SetupError unless the database is laid out for this version of skillbus."""
    sql = _statements()
    version = schema_version(server)
    wanted = max(migrations())
    if version == 0:
        _check_server(server, sql["components"])
        raise MisconfiguredError(
            f"Neo4j at {server.address} holds no library yet: start a worker, which lays it out, "
            "and ingest a source"
        )
    if version < wanted:
        raise MisconfiguredError(
            f"Neo4j at {server.address} has schema {version}, this version of skillbus reads "
            f"{wanted}: start a worker of this version, which brings it up to that"
        )
    if version > wanted:
        raise newer(server, version, wanted)


def schema_version(server: Neo4jClient) -> int:
    """The number of the last migration made, 0 where there was none."""
    return int(server.read(_statements()["schema_version"])[0][0])


def server_version(server: Neo4jClient) -> tuple[str, str]:
    """Version and edition of the server."""
    version, edition = server.read(_statements()["components"])[0]
    return str(version), str(edition)


def newer(server: Neo4jClient, version: int, known: int) -> MisconfiguredError:
    """What to say when a newer skillbus has laid out the database."""
    return MisconfiguredError(
        f"Neo4j at {server.address} has schema {version}, this version of skillbus knows {known}: "
        "update skillbus, or name a database of its own with servers.neo4j_database"
    )


def _check_server(server: Neo4jClient, components: str) -> None:
    found = server.read(components)
    if not found:
        raise TransientError(f"Neo4j at {server.address} does not tell its version")
    version = str(found[0][0])
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _LEAST_SERVER:
        least = ".".join(map(str, _LEAST_SERVER))
        raise MisconfiguredError(
            f"Neo4j at {server.address} is {version}: {least} or later is needed"
        )
