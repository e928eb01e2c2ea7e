"""Check a pair of saved GBFS feeds; one problem a line, exit status 1 when there is any."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def stale(feed: dict[str, Any], now: float) -> Iterator[str]:
    """Problems with the age of a feed."""
    updated, ttl = float(feed["last_updated"]), float(feed.get("ttl") or 60)
    if updated > now + 3600:
        yield f"last_updated {updated:.0f} lies in the future (milliseconds?)"
    elif now - updated > 3 * ttl:
        yield f"stale: updated {now - updated:.0f} s ago, ttl is {ttl:.0f} s"


def counts(capacity: dict[str, int | None], statuses: list[dict[str, Any]]) -> Iterator[str]:
    """Problems with single stations."""
    for status in statuses:
        station = status["station_id"]
        bikes, docks = status["num_bikes_available"], status.get("num_docks_available", 0)
        if bikes < 0 or docks < 0:
            yield f"station {station}: negative count ({bikes} bikes, {docks} docks)"
        limit = capacity.get(station)
        if limit is not None and bikes + docks > limit:
            yield f"station {station}: {bikes} bikes + {docks} docks > capacity {limit}"


def problems(info: dict[str, Any], status: dict[str, Any], now: float) -> Iterator[str]:
    """Everything that is wrong with the pair of feeds."""
    yield from stale(status, now)
    statuses = status["data"]["stations"]
    capacity = {one["station_id"]: one.get("capacity") for one in info["data"]["stations"]}
    for station in sorted(capacity.keys() - {one["station_id"] for one in statuses}):
        yield f"station {station}: no status"
    yield from counts(capacity, statuses)
    closed = sum(not one.get("is_renting", True) for one in statuses)
    if closed > len(statuses) / 10:
        yield f"{closed} of {len(statuses)} stations do not rent"


def main() -> int:
    """Check the two files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("information", type=Path)
    parser.add_argument("status", type=Path)
    args = parser.parse_args()
    info, status = (
        json.loads(path.read_text(encoding="utf-8")) for path in (args.information, args.status)
    )
    found = list(problems(info, status, time.time()))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
