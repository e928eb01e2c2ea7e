"""Load trip CSV files into the raw_trips table of a SQLite database."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

COLUMNS = (
    "trip_id",
    "bike_id",
    "started_at",
    "ended_at",
    "start_station_id",
    "end_station_id",
    "rider_type",
)
ALIASES = {
    "trip id": "trip_id",
    "id": "trip_id",
    "bike": "bike_id",
    "start time": "started_at",
    "end time": "ended_at",
    "from station": "start_station_id",
    "to station": "end_station_id",
    "rider type": "rider_type",
}
SCHEMA = """
create table if not exists raw_trips (
    trip_id text primary key, bike_id text, started_at text, ended_at text,
    start_station_id text, end_station_id text, rider_type text, source_file text
);
create table if not exists ingest_files (
    sha256 text primary key, name text not null, rows integer not null, loaded_at text not null
);
"""
INSERT = "insert or ignore into raw_trips values (?, ?, ?, ?, ?, ?, ?, ?)"


def decode(data: bytes, encoding: str | None) -> str:
    """Text of the file; without a named encoding UTF-8 is tried before Windows-1252."""
    if encoding:
        return data.decode(encoding)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252")


def rows(text: str) -> Iterator[tuple[str, ...]]:
    """Values of each row in the order of COLUMNS; raises ValueError on a missing column."""
    header = text.partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names = [name.strip().lower() for name in next(reader, [])]
    names = [ALIASES.get(name, name) for name in names]
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise ValueError(f"missing columns: {', '.join(missing)}")
    places = [names.index(column) for column in COLUMNS]
    for row in reader:
        if len(row) >= len(names):
            yield tuple(row[place].strip() for place in places)


def batches(items: Iterable[tuple[str, ...]], size: int) -> Iterator[list[tuple[str, ...]]]:
    """Consecutive lists of at most `size` items."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def load(db: sqlite3.Connection, path: Path, args: argparse.Namespace) -> dict[str, object]:
    """Load one file in one transaction and say what happened."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    known = db.execute("select 1 from ingest_files where sha256 = ?", (digest,)).fetchone()
    if known and not args.force:
        return {"file": path.name, "status": "already loaded", "rows": 0}
    before = db.total_changes
    with db:
        for batch in batches(rows(decode(data, args.encoding)), args.batch):
            db.executemany(INSERT, [(*row, path.name) for row in batch])
        count = db.total_changes - before
        db.execute(
            "insert or replace into ingest_files values (?, ?, ?, ?)",
            (digest, path.name, count, datetime.now(UTC).isoformat(timespec="seconds")),
        )
    return {"file": path.name, "status": "loaded", "rows": count}


def main() -> int:
    """Load every file named on the command line; 1 when any could not be loaded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--encoding")
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--force", action="store_true")
    args = parser.parse_args()
    db = sqlite3.connect(args.db, timeout=30)
    db.executescript(SCHEMA)
    failed = 0
    for path in args.files:
        try:
            result = load(db, path, args)
        except (OSError, ValueError) as error:
            failed = 1
            result = {"file": path.name, "status": "failed", "reason": str(error)}
        sys.stdout.write(json.dumps(result) + "\n")
    db.close()
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
