"""Measure the quality of answers and write the page about it.

usage: python -m tests.bench.quality measure DATA [--only SECTION ...] [--library HOME]
                                             [--cache FOLDER] [--sample N] [--sizes N ...]
       python -m tests.bench.quality render
       python -m tests.bench.quality check

measure   writes docs/explanation/quality.json, then the page and its plots; sections that are not
          measured keep their figures, unless encoder or --sample differ. DATA is described in
          docs/how-to/measure-your-own-library.md
render    writes page and plots from the results file
check     fails if page or plots are not what the results file gives
--library a home that holds all skills of DATA; without it one is made in --cache
--cache   where libraries are made and kept between runs
--sample  at most so many rows of each label file, for a trial
--sizes   skills of the random parts that long tasks are asked of, by default 1000 and 4000; those
          of the sources of the needed skills alone are always measured
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from config.errors import SkillbusError
from tests.bench.quality.data import QualityData
from tests.bench.quality.page import (
    DOCS,
    FORMAT,
    RESULTS,
    SECTIONS,
    find_stale,
    read_results,
    write_files,
    write_results,
)
from tests.bench.quality.run import SIZES, Run

CACHE = Path("build") / "quality"


def main(argv: list[str]) -> int:
    """Run one of the commands; returns the exit code."""
    options = _parse(argv)
    if options.command == "check":
        stale = find_stale()
        if stale:
            print(f"stale in docs/explanation: {', '.join(stale)}; run `make quality-page`")
        return int(bool(stale))
    if options.command == "measure":
        try:
            _measure(options)
        except SkillbusError as error:
            print(error, file=sys.stderr)
            return 2
    write_files()
    return 0


def _measure(options: argparse.Namespace) -> None:
    data = QualityData(options.data, options.sample)
    run = Run(data, options.cache, options.library, options.sizes)
    about = {"encoder": run.settings.encoder.model, "sample": options.sample}
    for name in options.only or SECTIONS:
        started = time.monotonic()
        measured = SECTIONS[name].measure(run)
        write_section(name, measured, about)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def write_section(name: str, measured: Any, about: dict[str, Any], folder: Path = DOCS) -> None:
    """Write the figures of a section; those of the others stay, unless they were measured with
    another encoder or sample, as the page names one of each."""
    # Another run may have measured other sections meanwhile.
    results: dict[str, Any] = {"format": FORMAT, "sections": {}}
    if (folder / RESULTS).exists():
        results = read_results(folder)
    kept = results["sections"] if results.get("about") == about else {}
    sections = kept | {name: measured}
    ordered = {one: sections[one] for one in SECTIONS if one in sections}
    write_results(results | {"sections": ordered, "about": about}, folder)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("render")
    commands.add_parser("check")
    measure = commands.add_parser("measure")
    measure.add_argument("data", type=Path)
    measure.add_argument("--only", nargs="*", choices=list(SECTIONS), default=[])
    measure.add_argument("--library", type=Path)
    measure.add_argument("--cache", type=Path, default=CACHE)
    measure.add_argument("--sample", type=int)
    measure.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
