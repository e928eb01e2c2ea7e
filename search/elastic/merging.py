"""Merges that remove deleted documents, so that no file of an index holds their text any more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from config.errors import TransientError
from search.elastic.connection import ElasticsearchConnection

_MERGE_SECONDS = 3_600.0
_LEASE_SECONDS = 90.0
"""Maximum seconds to wait for leases, which a server renews every 30 s."""
_COPY_LEASE = "peer_recovery/"
"""Start of the id of the lease of a copy; the id of its node follows."""

_NO_LEASE = 1 << 62
_POLL_SECONDS = 1.0


class ShardStatus(NamedTuple):
    """What a copy of a shard knows.

    shard: index and number. last: last operation. needed: first operation that a copy may need.
    absent: nodes that have a lease, but no copy now, since they are down.
    """

    shard: tuple[str, str]
    last: int
    needed: int
    absent: frozenset[str]


def merge_away_deleted(connection: ElasticsearchConnection, indices: Sequence[str]) -> None:
    """Merge each shard of indices into one segment without deleted documents.

    Elasticsearch keeps deleted documents for copies of a shard that might still need them; the
    lease of a copy says from which operation on. The merge therefore waits, at most _LEASE_SECONDS,
    until the leases have passed the deletions. It does not wait for a copy whose node is down: its
    lease stays as it is for hours. Raises TransientError after the merge if there is such a copy,
    since the files of its node, and of others for its sake, may still have the documents.
    """
    with connection.translate_errors() as client:
        client.indices.refresh(index=indices)
        client.indices.flush(index=indices)
        last = {one.shard: one.last for one in parse_shards(_read_stats(client, indices))}
        end = time.monotonic() + _LEASE_SECONDS
        while time.monotonic() < end and any(
            one.needed <= last.get(one.shard, -1)
            for one in parse_shards(_read_stats(client, indices))
        ):
            time.sleep(_POLL_SECONDS)
        patient = client.options(request_timeout=_MERGE_SECONDS)
        patient.indices.forcemerge(index=indices, max_num_segments=1)
        client.indices.flush(index=indices)
        shards = list(parse_shards(_read_stats(client, indices)))
    if absent := frozenset[str]().union(*(one.absent for one in shards)):
        raise TransientError(
            f"{connection.address}: files may still have deleted text, since nodes are down "
            f"({len(absent)}); try again when they are back",
            public_message="a node of the search index is down; try again when it is back",
        )


def _read_stats(client: Any, indices: Sequence[str]) -> Mapping[str, Any]:
    stats = client.indices.stats(index=indices, level="shards", metric="docs")
    return dict(stats["indices"])


def parse_shards(stats: Mapping[str, Any]) -> Iterator[ShardStatus]:
    """Yield the status of each copy. stats: by index, with shards."""
    for name, index in stats.items():
        for number, copies in index["shards"].items():
            present = {copy["routing"]["node"] for copy in copies}
            for copy in copies:
                needed, absent = [], set()
                for lease in copy.get("retention_leases", {}).get("leases", []):
                    node = lease["id"].partition(_COPY_LEASE)[2]
                    if node and node not in present:
                        absent.add(node)
                    else:
                        needed.append(lease["retaining_seq_no"])
                last = copy.get("seq_no", {}).get("max_seq_no", -1)
                first = min(needed, default=_NO_LEASE)
                yield ShardStatus((name, number), last, first, frozenset(absent))
