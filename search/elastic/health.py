"""How the search index is, for readiness, `doctor` and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from config.errors import SkillbusError, TransientError
from config.settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index_sets import INDEX_KINDS, SCHEMA, IndexIdentity, IndexSet, IndexSets

_LOW_DISK = 0.1
_WATCHES_DISK = "cluster.routing.allocation.disk.threshold_enabled"
_BLOCKS = frozenset(
    f"index.blocks.{name}" for name in ("write", "read_only", "read_only_allow_delete", "read")
)


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """What the server says, as far as it could be asked.

    status: `green`, `yellow` (copies are missing) or `red` (data is). index: name of the live set,
    "" without one. documents: revisions that searches can find, superseded ones included.
    disk_free, disk_total: bytes, of the fullest node. problems: what is wrong and what to do.
    """

    reachable: bool
    version: str = ""
    status: str = ""
    index: str = ""
    documents: int = 0
    bytes: int = 0
    disk_free: int = 0
    disk_total: int = 0
    superseded: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())


class LivenessProbe:
    """Whether the server lives, asked again and again over one connection."""

    def __init__(self, servers: ServerSettings) -> None:
        self._connection = ElasticsearchConnection(servers)

    def prepare(self) -> None:
        """Load the client's library; raises UsageError for settings that cannot be used."""
        _ = self._connection.client

    def version(self) -> str:
        """The version that answers; raises TransientError when none does, UsageError when it
        refuses the login."""
        return ", ".join(_versions(self._connection))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def index_health(servers: ServerSettings, model: str, dimension: int) -> IndexHealth:
    """Ask the server; what goes wrong is among the problems, nothing is raised for it."""
    connection = ElasticsearchConnection(servers)
    try:
        return _ask(connection, servers, IndexIdentity(SCHEMA, model, dimension))
    except TransientError as error:
        return IndexHealth(reachable=False, problems=(str(error),))
    except SkillbusError as error:
        return IndexHealth(reachable=True, problems=(str(error),))
    finally:
        connection.close()


def _ask(
    connection: ElasticsearchConnection, servers: ServerSettings, identity: IndexIdentity
) -> IndexHealth:
    found = _server(connection)
    sets = IndexSets(connection, servers)
    live = sets.get_live()
    if live is None:
        problem = (
            f"no search index with prefix {servers.elasticsearch_prefix!r} yet; a worker that "
            "ingests makes it"
        )
        return replace(found, problems=(*found.problems, problem))
    superseded = tuple(one.name for one in sets.superseded())
    return replace(_indices(connection, found, live, identity), superseded=superseded)


def _server(connection: ElasticsearchConnection) -> IndexHealth:
    """What there is to say of the server, without its indices."""
    with connection.translate_errors() as client:
        nodes = client.nodes.stats(
            metric="fs", filter_path=["nodes.*.fs.total", "nodes.*.name"]
        ).get("nodes", {})
        disk = client.cluster.get_settings(include_defaults=True, filter_path=f"*.{_WATCHES_DISK}")
    problems = []
    versions = _versions(connection)
    if any(not version.startswith("9.") for version in versions):
        problems.append(f"{connection.address} is version {versions[0]}; skillbus needs 9")
    free, total = _fullest(nodes)
    if total and free < _LOW_DISK * total and _watches_disk(disk.body):
        problems.append(
            f"{connection.address}: {free / 1e9:.1f} of {total / 1e9:.1f} GB free; above 95% used "
            "it refuses writes"
        )
    return IndexHealth(
        True, ", ".join(versions), disk_free=free, disk_total=total, problems=tuple(problems)
    )


def _indices(
    connection: ElasticsearchConnection, found: IndexHealth, live: IndexSet, identity: IndexIdentity
) -> IndexHealth:
    """What was found of the server, and what there is to say of the live set of indices."""
    problems = list(found.problems)
    if live.identity != identity:
        problems.append(
            f"the search index {live.name} was made with {live.identity}, not {identity}: set it "
            "back, or run `skillbus reindex`"
        )
    names = [live.index_name(kind) for kind in INDEX_KINDS]
    with connection.translate_errors() as client:
        status = str(client.cluster.health(index=names, level="cluster")["status"])
        stats = client.indices.stats(
            index=names, metric=["docs", "store"], filter_path=["indices.*.primaries"]
        )["indices"]
        blocks = client.indices.get_settings(index=names, flat_settings=True)
    if status == "red":
        problems.append(f"{connection.address}: data of {live.name} is missing (status red)")
    blocked = _blocked(blocks.body)
    if blocked:
        problems.append(
            f"{', '.join(blocked)} refuse writes: a reindex under way, a full disk, or set so; "
            "run `skillbus reindex` again, free disk, or lift index.blocks"
        )
    return replace(
        found,
        status=status,
        index=live.name,
        documents=int(stats[live.index_name("skills")]["primaries"]["docs"]["count"]),
        bytes=sum(int(one["primaries"]["store"]["size_in_bytes"]) for one in stats.values()),
        problems=tuple(problems),
    )


def _versions(connection: ElasticsearchConnection) -> list[str]:
    with connection.translate_errors() as client:
        info = client.nodes.info(node_id="_all", metric="_none", filter_path="nodes.*.version").get(
            "nodes", {}
        )
    return sorted({str(node["version"]) for node in info.values()})


def _fullest(nodes: Mapping[str, Any]) -> tuple[int, int]:
    """(free, total) bytes of the node with the least room; zeros where none tells."""
    rooms = [
        (int(disk["available_in_bytes"]), int(disk["total_in_bytes"]))
        for node in nodes.values()
        if (disk := node.get("fs", {}).get("total", {})).get("total_in_bytes")
    ]
    return min(rooms, key=lambda room: room[0] / room[1], default=(0, 0))


def _watches_disk(settings: Mapping[str, Any]) -> bool:
    """Whether the server minds a full disk; what was set last comes first."""
    for level in ("transient", "persistent", "defaults"):
        value: Any = settings.get(level, {})
        for name in _WATCHES_DISK.split("."):
            value = value.get(name, {})
        if value:
            return str(value) == "true"
    return True


def _blocked(settings: Mapping[str, Any]) -> list[str]:
    """Indices that a block keeps from being written."""
    return sorted(
        name
        for name, body in settings.items()
        if any(value == "true" for setting, value in body["settings"].items() if setting in _BLOCKS)
    )
