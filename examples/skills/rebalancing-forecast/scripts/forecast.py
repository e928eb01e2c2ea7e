"""Forecast hourly net flow and bike levels per station from the seasonal average."""

from __future__ import annotations

import argparse
import csv
import sqlite3
import sys
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

FLOW = """
select end_station_id as station, cast(substr(ended_at, 12, 2) as integer) as hour, 1 as net
from trips where substr(ended_at, 1, 10) = :day
union all
select start_station_id, cast(substr(started_at, 12, 2) as integer), -1
from trips where substr(started_at, 1, 10) = :day
"""


def net_flow(
    db: sqlite3.Connection, day: date, weeks: int, decay: float
) -> dict[tuple[str, int], float]:
    """Weighted mean of arrivals minus departures by (station, hour) on past same weekdays."""
    total: dict[tuple[str, int], float] = defaultdict(float)
    weight_sum, seen = 0.0, 0
    for back in range(1, weeks + 1):
        past = (day - timedelta(weeks=back)).isoformat()
        flows = db.execute(FLOW, {"day": past}).fetchall()
        if not flows:
            continue
        weight = decay**back
        weight_sum += weight
        seen += 1
        for station, hour, net in flows:
            total[station, hour] += weight * net
    if seen < 2:
        raise ValueError(f"not enough history: {seen} of {weeks} past weeks have trips")
    return {key: value / weight_sum for key, value in total.items()}


def read_levels(path: Path | None) -> dict[str, float]:
    """Bikes at the start of the day by station, from a CSV `station_id,bikes`."""
    if path is None:
        return {}
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return {row["station_id"]: float(row["bikes"]) for row in csv.DictReader(handle)}


def station_rows(
    station: str, capacity: int, level: float, flow: dict[tuple[str, int], float], reserve: int
) -> list[tuple[str, int, float, float, str]]:
    """The 24 forecast rows of one station; each flag is set in its first hour only."""
    rows, raised = [], set()
    for hour in range(24):
        net = flow.get((station, hour), 0.0)
        wanted = level + net
        flag = "empty" if wanted < reserve else "full" if wanted > capacity - reserve else ""
        level = min(max(wanted, 0.0), float(capacity))
        shown = "" if flag in raised else flag
        raised.add(flag)
        rows.append((station, hour, round(net, 2), round(level, 1), shown))
    return rows


def main() -> int:
    """Write the forecast of one day as CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--day", type=date.fromisoformat, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--decay", type=float, default=0.85)
    parser.add_argument("--reserve", type=int, default=2)
    parser.add_argument("--levels", type=Path)
    args = parser.parse_args()
    db = sqlite3.connect(args.db)
    try:
        flow = net_flow(db, args.day, args.weeks, args.decay)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    levels = read_levels(args.levels)
    stations = db.execute(
        "select station_id, coalesce(capacity, 0) from stations order by station_id"
    )
    with args.out.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(("station_id", "hour", "net_flow", "level", "flag"))
        for station, capacity in stations:
            start = levels.get(station, capacity / 2)
            writer.writerows(station_rows(station, capacity, start, flow, args.reserve))
    db.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
