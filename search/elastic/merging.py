"""Merges that remove deleted documents, so that no file of an index holds their text any more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from search.elastic.connection import ElasticsearchConnection

_MERGE_SECONDS = 3_600.0
_LEASE_SECONDS = 90.0
"""Maximum seconds to wait for leases. A server renews them every 30 s, but keeps the lease of an
absent copy for hours."""

_POLL_SECONDS = 1.0


def merge_away_deleted(connection: ElasticsearchConnection, indices: Sequence[str]) -> None:
    """Merge each shard of indices into one segment without deleted documents.

    Elasticsearch keeps deleted documents for copies of a shard that might still need them; the
    lease of a copy says from which operation on. The merge therefore waits, at most _LEASE_SECONDS,
    until the leases have passed the deletions.
    """
    with connection.translate_errors() as client:
        client.indices.refresh(index=indices)
        client.indices.flush(index=indices)
        last = {shard: last for shard, last, _ in _read_shards(client, indices)}
        end = time.monotonic() + _LEASE_SECONDS
        while time.monotonic() < end and any(
            needed <= last.get(shard, -1) for shard, _, needed in _read_shards(client, indices)
        ):
            time.sleep(_POLL_SECONDS)
        patient = client.options(request_timeout=_MERGE_SECONDS)
        patient.indices.forcemerge(index=indices, max_num_segments=1)
        client.indices.flush(index=indices)


def _read_shards(client: Any, indices: Sequence[str]) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Yield (index and number, last operation, first operation that a copy may need) of each
    shard."""
    stats = client.indices.stats(index=indices, level="shards", metric="docs")
    for name, index in stats["indices"].items():
        for number, copies in index["shards"].items():
            for copy in copies:
                leases = copy.get("retention_leases", {}).get("leases", [])
                needed = min((one["retaining_seq_no"] for one in leases), default=1 << 62)
                yield (name, number), copy.get("seq_no", {}).get("max_seq_no", -1), needed
