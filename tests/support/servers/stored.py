"""Everything that the servers of a deployment store, in a form in which it can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tasks.broker.redis_backup import PASSING_KEYS
from tasks.broker.redis_connection import PREFIX, connect
from tests.support.samples.catalog import forget_layout, run_cypher
from tests.support.servers.distributed import Distributed

_NODE = "labels({0}) + [key IN ['skill_id', 'seq', 'place'] | {0}[key]]"


def stored(deployment: Distributed) -> dict[str, Any]:
    """All nodes and relations, all keys of skillbus, and all revisions with their vectors."""
    servers = deployment.settings.servers
    nodes = run_cypher(servers, "MATCH (n) RETURN labels(n), properties(n)")
    relations = run_cypher(
        servers,
        f"MATCH (a)-[r]->(b) RETURN {_NODE.format('a')}, type(r), {_NODE.format('b')}, "
        "properties(r)",
    )
    return {
        "nodes": sorted(map(_text, nodes)),
        "relations": sorted(map(_text, relations)),
        "keys": dict(_keys(deployment)),
        "revisions": dict(_revisions(deployment)),
    }


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What two results of `stored` hold differently, by the kind of thing and its key."""
    found = [name for name in ("nodes", "relations") if one[name] != other[name]]
    for name in ("keys", "revisions"):
        keys = one[name].keys() | other[name].keys()
        found += [f"{name} {key}" for key in keys if one[name].get(key) != other[name].get(key)]
    return sorted(found)


def _text(row: list[Any]) -> str:
    return repr([sorted(one.items()) if isinstance(one, dict) else one for one in row])


def _keys(deployment: Distributed) -> Iterator[tuple[bytes, Any]]:
    readers: dict[bytes, Callable[[Any, bytes], Any]] = {
        b"string": lambda client, key: client.get(key),
        b"hash": lambda client, key: sorted(client.hgetall(key).items()),
        b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
        b"set": lambda client, key: sorted(client.smembers(key)),
        b"list": lambda client, key: client.lrange(key, 0, -1),
    }
    with connect(deployment.settings.servers, binary=True) as client:
        for key in client.scan_iter(match=f"{PREFIX}*"):
            if not key.decode().startswith(PASSING_KEYS):
                yield key, readers[client.type(key)](client, key)


def _revisions(deployment: Distributed) -> Iterator[tuple[Any, Any]]:
    with deployment.index() as index:
        keys = index.list_keys()
        revisions, skills = index.get_revisions(keys), index.get_skill_vectors(keys)
        sections = index.get_section_vectors(keys)
        for key in keys:
            one, terms = revisions[key], revisions[key].passage_terms
            data = [array.tobytes() for array in (terms.offsets, terms.terms, terms.counts)]
            yield key, (one.content_hash, one.parsed, one.section_hashes, one.filters, *data)
            for name, vectors in (("skill", skills), ("sections", sections)):
                yield (*key, name), vectors[key].tobytes() if key in vectors else b""


def make_new(deployment: Distributed) -> None:
    """Make its servers ones that skillbus has never seen; no worker may run."""
    deployment.wipe()
    forget_layout(deployment.settings.servers)
    deployment.drop_indices()
