"""Rebuild trips and rejected_trips from raw_trips, with one reason for each rejected row."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

LOCAL = ZoneInfo("Europe/Amsterdam")
SCHEMA = """
create table if not exists trips (
    trip_id text primary key, bike_id text, started_at text, ended_at text,
    start_station_id text, end_station_id text, rider_type text, duration_s integer
);
create table if not exists rejected_trips (
    trip_id text primary key, started_at text, reason text not null
);
"""
FORGET = (
    "delete from trips where trip_id in (select trip_id from raw_trips where started_at >= ?)",
    "delete from rejected_trips where trip_id in "
    "(select trip_id from raw_trips where started_at >= ?)",
)
SELECT = """
select trip_id, bike_id, started_at, ended_at, start_station_id, end_station_id, rider_type
from raw_trips where started_at >= ? order by trip_id
"""


def to_utc(text: str, fold: int = 0) -> datetime:
    """A local vendor time as UTC; `fold` 1 is the second of two equal hours. Or ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=LOCAL, fold=fold)
    return moment.astimezone(UTC)


def span(started_at: str, ended_at: str) -> tuple[datetime, datetime]:
    """Start and end in UTC; an end before its start is first read in the repeated hour."""
    start, end = to_utc(started_at), to_utc(ended_at)
    return start, end if end >= start else to_utc(ended_at, fold=1)


def judge(
    row: Sequence[str], start: datetime, end: datetime, stations: set[str], args: argparse.Namespace
) -> str:
    """The reason to reject a row, or an empty string."""
    duration = (end - start).total_seconds()
    if duration < 0:
        return "negative"
    if row[6].lower() in {"staff", "test"}:
        return "staff"
    if row[4] == row[5] and duration < args.false_start_s:
        return "false_start"
    if duration > args.max_hours * 3600:
        return "too_long"
    if stations and not {row[4], row[5]} <= stations:
        return "unknown_station"
    return ""


def known_stations(db: sqlite3.Connection) -> set[str]:
    """Ids in the stations table; empty when there is no such table."""
    table = db.execute("select 1 from sqlite_master where name = 'stations'").fetchone()
    return {row[0] for row in db.execute("select station_id from stations")} if table else set()


def clean(db: sqlite3.Connection, args: argparse.Namespace) -> Counter[str]:
    """Rebuild both tables from `--since` on in one transaction; rows by outcome."""
    stations = known_stations(db)
    outcome: Counter[str] = Counter()
    with db:
        for statement in FORGET:
            db.execute(statement, (args.since,))
        for row in db.execute(SELECT, (args.since,)).fetchall():
            try:
                start, end = span(row[2], row[3])
            except ValueError:
                reason = "bad_time"
            else:
                reason = judge(row, start, end, stations, args)
            outcome[reason or "kept"] += 1
            if reason:
                values = (row[0], row[2], reason)
                db.execute("insert into rejected_trips values (?, ?, ?)", values)
                continue
            seconds = int((end - start).total_seconds())
            times = [moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (start, end)]
            kept = (row[0], row[1], *times, row[4], row[5], row[6], seconds)
            db.execute("insert into trips values (?, ?, ?, ?, ?, ?, ?, ?)", kept)
    if not stations:
        outcome["station_rule_skipped"] = 1
    return outcome


def main() -> int:
    """Clean the database named on the command line and write a JSON summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--since", default="", help="first local day, YYYY-MM-DD")
    parser.add_argument("--false-start-s", type=int, default=90)
    parser.add_argument("--max-hours", type=float, default=12)
    args = parser.parse_args()
    db = sqlite3.connect(args.db, timeout=30)
    db.executescript(SCHEMA)
    sys.stdout.write(json.dumps(clean(db, args), sort_keys=True) + "\n")
    db.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
