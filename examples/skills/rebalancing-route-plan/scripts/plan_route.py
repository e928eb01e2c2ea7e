"""Plan a greedy rebalancing tour: always the nearest stop that the van can serve."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

EARTH_KM = 6371.0


@dataclass
class Stop:
    """A station with bikes to collect (positive delta) or to deliver (negative)."""

    station_id: str
    lat: float
    lon: float
    delta: int


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Great-circle distance between two (lat, lon) points in degrees."""
    lat_a, lat_b = math.radians(a[0]), math.radians(b[0])
    d_lat, d_lon = lat_b - lat_a, math.radians(b[1] - a[1])
    h = math.sin(d_lat / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin(d_lon / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(h))


def servable(stop: Stop, load: int, capacity: int) -> int:
    """How many bikes the van can move at this stop now; the sign is that of the delta."""
    return min(stop.delta, capacity - load) if stop.delta > 0 else max(stop.delta, -load)


def plan(stops: list[Stop], args: argparse.Namespace) -> list[dict[str, object]]:
    """Stops in the order of the tour, with the load and minutes after each."""
    here, load, minutes = args.depot, 0, 0.0
    tour: list[dict[str, object]] = []
    open_stops = [stop for stop in stops if stop.delta]
    while True:
        ready = [stop for stop in open_stops if servable(stop, load, args.capacity)]
        if not ready:
            return tour
        stop = min(ready, key=lambda s: (distance_km(here, (s.lat, s.lon)), s.station_id))
        arrival = minutes + 60 * distance_km(here, (stop.lat, stop.lon)) / args.speed
        if arrival > args.shift_min:
            return tour
        moved = servable(stop, load, args.capacity)
        load += moved
        stop.delta -= moved
        minutes = arrival + args.stop_min + args.handling * abs(moved)
        here = (stop.lat, stop.lon)
        entry = {"station_id": stop.station_id, "moved": moved, "load": load}
        tour.append({**entry, "minutes": round(minutes, 1)})
        open_stops = [other for other in open_stops if other.delta]


def point(text: str) -> tuple[float, float]:
    """Parse `lat,lon`."""
    lat, lon = text.split(",")
    return float(lat), float(lon)


def main() -> int:
    """Read the moves and write one JSON line for each stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("moves", type=Path)
    parser.add_argument("--depot", type=point, required=True)
    parser.add_argument("--capacity", type=int, default=18)
    parser.add_argument("--speed", type=float, default=19)
    parser.add_argument("--handling", type=float, default=0.7)
    parser.add_argument("--stop-min", type=float, default=4)
    parser.add_argument("--shift-min", type=float, default=240)
    args = parser.parse_args()
    with args.moves.open(encoding="utf-8-sig", newline="") as handle:
        stops = [
            Stop(row["station_id"], float(row["lat"]), float(row["lon"]), int(row["delta"]))
            for row in csv.DictReader(handle)
        ]
    for entry in plan(stops, args):
        sys.stdout.write(json.dumps(entry) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
