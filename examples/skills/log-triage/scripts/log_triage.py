"""Group log lines by shape: standard input to a ranked list of distinct problems."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict, dataclass

STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
SHAPES = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), "<ip>"),
    (re.compile(r"'[^']*'|\"[^\"]*\""), "<s>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b", re.IGNORECASE), "<x>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)


@dataclass
class Group:
    """Lines of one shape; times are as they stand in the log, empty where there are none."""

    shape: str
    count: int
    first: str
    last: str
    example: str


def shape_of(line: str) -> tuple[str, str]:
    """The line without its variable parts, and its timestamp."""
    stamp = STAMP.search(line)
    shape = STAMP.sub("", line)
    for pattern, placeholder in SHAPES:
        shape = pattern.sub(placeholder, shape)
    return " ".join(shape.split()), stamp[0] if stamp else ""


def main() -> int:
    """Read lines, write the largest groups in the order in which they were first seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--level", default="")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    groups: dict[str, Group] = {}
    for line in sys.stdin:
        if not line.strip() or args.level not in line:
            continue
        shape, stamp = shape_of(line)
        group = groups.setdefault(shape, Group(shape, 0, stamp, stamp, line.rstrip()))
        group.count += 1
        group.last = stamp or group.last
    largest = sorted(groups.values(), key=lambda g: -g.count)[: args.top]
    for group in sorted(largest, key=lambda g: g.first):
        if args.json:
            sys.stdout.write(json.dumps(asdict(group)) + "\n")
        else:
            sys.stdout.write(f"{group.count:>8}  {group.first} .. {group.last}  {group.shape}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
