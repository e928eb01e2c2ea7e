"""Compare the cost of a month with the month before, by any columns of the bill."""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

Costs = dict[tuple[str, ...], Decimal]


def month_before(month: str) -> str:
    """The month before `YYYY-MM`, in the same form."""
    year, number = (int(part) for part in month.split("-"))
    return f"{year - 1}-12" if number == 1 else f"{year}-{number - 1:02}"


def read_costs(path: Path, keys: list[str], only_untagged: bool) -> dict[str, Costs]:
    """Cost by month and group; empty group values read as `untagged`."""
    months: dict[str, Costs] = defaultdict(lambda: defaultdict(Decimal))
    with path.open(encoding="utf-8-sig", newline="") as handle:
        for row in csv.DictReader(handle):
            if only_untagged and row["tag_team"]:
                continue
            group = tuple(row[key] or "untagged" for key in keys)
            months[row["month"]][group] += Decimal(row["cost_eur"])
    return months


def main() -> int:
    """Write the comparison as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bill", type=Path)
    parser.add_argument("--month", required=True)
    parser.add_argument("--by", default="tag_team")
    parser.add_argument("--min-change", type=Decimal, default=Decimal(0))
    parser.add_argument("--only-untagged", action="store_true")
    args = parser.parse_args()
    keys = args.by.split(",")
    months = read_costs(args.bill, keys, args.only_untagged)
    now, before = months.get(args.month, {}), months.get(month_before(args.month), {})
    if not now:
        sys.stderr.write(f"no rows for {args.month}\n")
        return 1
    zero = Decimal(0)
    changes = {group: now.get(group, zero) - before.get(group, zero) for group in {*now, *before}}
    lines = [f"| {' | '.join(keys)} | before | now | change |", "| --- " * (len(keys) + 3) + "|"]
    for group, change in sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0])):
        if abs(change) >= args.min_change:
            amounts = f"{before.get(group, zero):.2f} | {now.get(group, zero):.2f} | {change:+.2f}"
            lines.append(f"| {' | '.join(group)} | {amounts} |")
    total, total_before = sum(now.values(), zero), sum(before.values(), zero)
    lines.append(f"\nTotal {total:.2f} EUR, {total - total_before:+.2f} EUR to the month before.")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
