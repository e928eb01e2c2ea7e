"""Fill servers with a library many times the size of an embedded one, made from it.

    python -m tests.bench.enlarge HOME SKILLS [--processes N] [--invent-sections]

Skills made of the name of one skill of HOME and the text of another (`tests.bench.recombine`) are
added until there are SKILLS. HOME's own skills have to be there already (`tests.bench.fill`).
`--invent-sections` gives skills whose sections are not embedded vectors near that of their head.
Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path

from config.load_settings import load_settings
from config.server_settings import ServerSettings
from graph.local.store import SqliteSkillGraph
from tests.bench.fill import open_pair
from tests.bench.recombine import (
    AT_ONCE,
    add_sources,
    copy_links,
    list_turns,
    make_batches,
    read_originals,
    save_sections,
    save_skills,
)
from workers.backend.stores import open_graph


@dataclass(frozen=True, slots=True)
class _Part:
    """What one process does: every `parts`-th batch of real skills, in all rounds."""

    home: Path
    servers: ServerSettings
    skills: int
    invent_sections: bool
    part: int
    parts: int


def _enlarge(part: _Part) -> int:
    made = 0
    source, target = open_pair(part.home, part.servers)
    with contextlib.ExitStack() as stack:
        graph = open_graph(load_settings(), stack, writable=True)
        order = sorted(source.list_keys())
        turns = dict(list_turns(len(order), part.skills))
        for start in range(0, len(order), AT_ONCE)[part.part :: part.parts]:
            originals = read_originals(
                source, order[start : start + AT_ONCE], invent_sections=part.invent_sections
            )
            if part.invent_sections:
                save_sections(target, graph, originals)
            for batch in make_batches(originals, turns, order, graph):
                save_skills(target, graph, batch)
                made += len(batch)
    return made


def main() -> None:
    """Enlarge, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("skills", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--invent-sections", action="store_true")
    given = parser.parse_args()
    servers, started = load_settings().servers, time.monotonic()
    parts = [
        _Part(given.home, servers, given.skills, given.invent_sections, part, given.processes)
        for part in range(given.processes)
    ]
    with contextlib.ExitStack() as stack:
        catalog = SqliteSkillGraph(given.home / "graph.db", writable=False)
        stack.callback(catalog.close)
        graph = open_graph(load_settings(), stack, writable=True)
        add_sources(catalog, graph)
        with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
            made = sum(pool.map(_enlarge, parts))
        index_seconds = time.monotonic() - started
        ids = sorted(
            skill_id for skill_id, seq in catalog.get_changes_since(0).pointers.items() if seq
        )
        links = copy_links(catalog, graph, ids, given.skills)
    seconds = time.monotonic() - started
    report = {"made": made, "skills_s": round(index_seconds), "links": links, "s": round(seconds)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
