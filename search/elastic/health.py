"""Health of Elasticsearch and the search index, for readiness and `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from config.errors import SkillbusError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index_sets import INDEX_KINDS, SCHEMA, IndexIdentity, IndexSet, IndexSets

_MIN_FREE_DISK_SHARE = 0.1
_DISK_SETTING = "cluster.routing.allocation.disk.threshold_enabled"
_BLOCKS = frozenset(
    f"index.blocks.{name}" for name in ("write", "read_only", "read_only_allow_delete", "read")
)


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """State of the server and the live index set; parts that could not be read have their defaults.

    status: `green`, `yellow` (replicas are missing) or `red` (data is missing). index: name of the
    live set, "" without one. documents: revisions that searches can find, superseded ones included.
    bytes: size on disk. superseded: names of sets that are not live. problems: messages that say
    what is wrong and what to do.
    """

    version: str = ""
    status: str = ""
    index: str = ""
    documents: int = 0
    bytes: int = 0
    superseded: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class LivenessProbe:
    """Check of whether the server answers, for repeated use over one connection."""

    def __init__(self, servers: ServerSettings) -> None:
        self._connection = ElasticsearchConnection(servers)

    def prepare(self) -> None:
        """Load the client's library; raises MisconfiguredError for unusable settings."""
        _ = self._connection.client

    def version(self) -> str:
        """Return the server's version.

        Raises TransientError when it does not answer, MisconfiguredError when it refuses the
        credentials.
        """
        return ", ".join(_versions(self._connection))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def describe_other_index(servers: ServerSettings, model: str, dimension: int) -> str:
    """Return why the live index does not have this model and version; "" if it does, or if there is
    no index yet.

    Raises TransientError if Elasticsearch does not answer, MisconfiguredError if it refuses to.
    """
    with closing(ElasticsearchConnection(servers)) as connection:
        live = IndexSets(connection, servers).get_live()
    wanted = IndexIdentity(SCHEMA, model, dimension)
    if live is None or live.identity == wanted:
        return ""
    return f"the search index {live.name} is of {live.identity}, not {wanted}"


def index_health(servers: ServerSettings, model: str, dimension: int) -> IndexHealth:
    """Read the health; errors are reported as `problems`, not raised."""
    with closing(ElasticsearchConnection(servers)) as connection:
        try:
            return _read_health(connection, servers, IndexIdentity(SCHEMA, model, dimension))
        except SkillbusError as error:
            return IndexHealth(problems=(str(error),))


def _read_health(
    connection: ElasticsearchConnection, servers: ServerSettings, identity: IndexIdentity
) -> IndexHealth:
    found = _read_server_health(connection)
    sets = IndexSets(connection, servers)
    live = sets.get_live()
    if live is None:
        problem = (
            f"no search index with prefix {servers.elasticsearch_prefix!r} yet; a worker that "
            "ingests creates it"
        )
        return replace(found, problems=(*found.problems, problem))
    superseded = tuple(one.name for one in sets.superseded())
    return replace(_read_set_health(connection, found, live, identity), superseded=superseded)


def _read_server_health(connection: ElasticsearchConnection) -> IndexHealth:
    """Read the health of the server, without its indices."""
    with connection.translate_errors() as client:
        nodes = client.nodes.stats(
            metric="fs", filter_path=["nodes.*.fs.total", "nodes.*.name"]
        ).get("nodes", {})
        disk = client.cluster.get_settings(include_defaults=True, filter_path=f"*.{_DISK_SETTING}")
    problems = []
    versions = _versions(connection)
    if any(not version.startswith("9.") for version in versions):
        problems.append(f"{connection.address} is version {versions[0]}; skillbus needs 9")
    free, total = _fullest_disk(nodes)
    if total and free < _MIN_FREE_DISK_SHARE * total and _has_disk_watermarks(disk.body):
        problems.append(
            f"{connection.address}: {free / 1e9:.1f} of {total / 1e9:.1f} GB free; above 95% used "
            "it refuses writes"
        )
    return IndexHealth(", ".join(versions), problems=tuple(problems))


def _read_set_health(
    connection: ElasticsearchConnection, found: IndexHealth, live: IndexSet, identity: IndexIdentity
) -> IndexHealth:
    """Add the health of the live index set to that of the server."""
    problems = list(found.problems)
    if live.identity != identity:
        problems.append(
            f"the search index {live.name} was made with {live.identity}, not {identity}: set it "
            "back, or run `skillbus reindex`"
        )
    names = [live.index_name(kind) for kind in INDEX_KINDS]
    with connection.translate_errors() as client:
        # First, since the health of a missing index is waited for.
        stats = client.indices.stats(
            index=names, metric=["docs", "store"], filter_path=["indices.*.primaries"]
        )["indices"]
        status = str(client.cluster.health(index=names, level="cluster")["status"])
        blocks = client.indices.get_settings(index=names, flat_settings=True)
    if status == "red":
        problems.append(f"{connection.address}: data of {live.name} is missing (status red)")
    blocked = _blocked_indices(blocks.body)
    if blocked:
        problems.append(
            f"{', '.join(blocked)} refuse writes, because of a reindex in progress, a full disk or "
            "a manual block; run `skillbus reindex` again, free disk, or lift index.blocks"
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


def _fullest_disk(nodes: Mapping[str, Any]) -> tuple[int, int]:
    """Return (free, total) bytes of the fullest node; zeros if no node reports its disk."""
    disks = [
        (int(disk["available_in_bytes"]), int(disk["total_in_bytes"]))
        for node in nodes.values()
        if (disk := node.get("fs", {}).get("total", {})).get("total_in_bytes")
    ]
    return min(disks, key=lambda disk: disk[0] / disk[1], default=(0, 0))


def _has_disk_watermarks(settings: Mapping[str, Any]) -> bool:
    """Return whether the server blocks writes on a full disk. Transient settings take
    precedence."""
    for level in ("transient", "persistent", "defaults"):
        value: Any = settings.get(level, {})
        for name in _DISK_SETTING.split("."):
            value = value.get(name, {})
        if value:
            return str(value) == "true"
    return True


def _blocked_indices(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of indices that have a block on writes."""
    return sorted(
        name
        for name, body in settings.items()
        if any(value == "true" for setting, value in body["settings"].items() if setting in _BLOCKS)
    )
