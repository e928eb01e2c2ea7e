"""Benchmark of reading skills: processor time by stage, from a folder to what the index stores.

    python -m tests.bench.parse DIR [--skills N]

DIR: a folder of skills. Encoding is left out. Prints JSON: milliseconds of processor time per skill
by stage, and the memory of the process. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from config.errors import PermanentError
from config.load_settings import load_settings
from config.settings import Settings
from graph.links.mentions import find_mentions
from search.blob_codec import pack_forward, pack_passage_terms
from search.skill_analysis import (
    analyse_skill,
    body_terms,
    description_terms,
    section_text_hashes,
    skill_texts,
)
from search.text.background_frequencies import load_background
from skills import record_codec
from skills.parsing.parse_skill import parse_skill
from skills.roles.classifier import load_default_classifier
from tasks.sources.directory import to_parse_limits
from tasks.sources.skill_folder import read_skill_folder

_WARM_UP = 20
"""Skills that are read first and not counted: patterns are compiled on first use."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Stages:
    """Processor time by stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def run(self, stage: str, work: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
        """The result of a function, whose time is added to the stage."""
        start = time.process_time()
        result = work(*args, **named)
        self.seconds[stage] += time.process_time() - start
        return result


def measure(root: Path, paths: Sequence[str], settings: Settings) -> tuple[_Stages, int]:
    """Times of reading the skills, and how many of them could be read."""
    limits, classifier = to_parse_limits(settings.limits), load_default_classifier()
    background = load_background()
    stages, read = _Stages(), 0
    for path in paths:
        try:
            folder = stages.run("read", read_skill_folder, root, path, settings.limits)
            content, files, siblings = folder.content, folder.files, folder.sibling_files
            parsed = stages.run(
                "parse", parse_skill, path, content, files, limits, classifier, siblings
            )
        except PermanentError:
            continue
        read += 1
        found = stages.run("analyse", analyse_skill, parsed)
        stages.run("mentions", find_mentions, parsed)
        stages.run("terms", body_terms, found, background)
        stages.run("terms", description_terms, found, background)
        stages.run("hashes", section_text_hashes, "m", parsed)
        stages.run("hashes", skill_texts, parsed)
        stages.run("pack", record_codec.dump, parsed)
        stages.run("pack", pack_forward, found.forward)
        stages.run("pack", pack_passage_terms, found.passage_terms)
    return stages, read


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
    stages, read = measure(root, paths[_WARM_UP : _WARM_UP + arguments.skills], settings)
    each = {name: round(1000 * spent / max(1, read), 2) for name, spent in stages.seconds.items()}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    total = round(sum(each.values()), 2)
    print(json.dumps({"skills": read, "ms": each, "ms_total": total, "peak_mib": memory}))


if __name__ == "__main__":
    main()
