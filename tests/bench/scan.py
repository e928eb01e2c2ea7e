"""Benchmark of the safety scanner: processor time per skill.

    python -m tests.bench.scan DIR [--skills N]

DIR: a folder of skills. Prints JSON: median and 95th percentile of milliseconds, for the SKILL.md
alone and for whole skills that have scripts, with and without their other texts. Nothing here is a
test.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from config.errors import PermanentError
from config.load_settings import load_settings
from config.settings import Settings
from skills.parsing.sibling_files import scan_files
from skills.parsing.tooling import find_entrypoints
from skills.scanner import scan_lines
from tasks.sources.protocol import SkillFolder
from tasks.sources.skill_folder import read_skill_folder

_WARM_UP = 20
"""Skills that are scanned first and not counted: patterns are compiled on first use."""


def measure(root: Path, paths: Sequence[str], settings: Settings) -> dict[str, list[float]]:
    """Milliseconds of each skill by what of it is scanned."""
    times: dict[str, list[float]] = defaultdict(list)
    for path in paths:
        try:
            folder = read_skill_folder(root, path, settings.limits)
        except PermanentError:
            continue
        times["SKILL.md"].append(_scan(folder, None))
        scripts = set(find_entrypoints(folder.files))
        if scripts:
            read = {name: text for name, text in folder.sibling_files.items() if name in scripts}
            times["with scripts"].append(_scan(folder, read))
            times["with scripts and texts"].append(_scan(folder, folder.sibling_files))
    return times


def _scan(folder: SkillFolder, contents: Mapping[str, bytes] | None) -> float:
    lines = folder.content.decode("utf-8", "replace").split("\n")
    start = time.process_time()
    scan_lines(lines, 1)
    if contents is not None:
        scan_files(folder.files, contents, lines, 1)
    return 1000 * (time.process_time() - start)


def main() -> None:
    """Measure the skills below a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--skills", type=int, default=600)
    arguments = parser.parse_args()
    root: Path = arguments.folder.resolve()
    paths = sorted(str(one.parent.relative_to(root)) for one in root.rglob("SKILL.md"))
    random.Random(3).shuffle(paths)
    settings = load_settings()
    measure(root, paths[:_WARM_UP], settings)
    times = measure(root, paths[: arguments.skills], settings)
    report = {
        what: {
            "skills": len(each),
            "median_ms": round(float(np.median(each)), 2),
            "p95_ms": round(float(np.percentile(each, 95)), 2),
        }
        for what, each in times.items()
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
