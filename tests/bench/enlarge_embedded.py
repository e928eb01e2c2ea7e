"""Make an embedded library many times the size of another one, from it.

    python -m tests.bench.enlarge_embedded HOME TARGET SKILLS [--invent-sections]

TARGET, which must not exist, becomes a copy of HOME, no process of which may run; then skills made
of the name of one and the text of another (`tests.bench.recombine`) are added until there are
SKILLS. `--invent-sections` gives skills whose sections are not embedded vectors near that of their
head. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from contextlib import closing
from pathlib import Path

from config.settings import EncoderSettings
from graph.local.store import SqliteSkillGraph
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
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


def enlarge(
    index: LocalSearchIndex, graph: SqliteSkillGraph, skills: int, *, invent_sections: bool
) -> int:
    """Add skills until there are `skills` of them; returns how many were added."""
    made, order = 0, sorted(index.list_keys())
    turns = dict(list_turns(len(order), skills))
    for start in range(0, len(order), AT_ONCE):
        keys = order[start : start + AT_ONCE]
        originals = read_originals(index, keys, invent_sections=invent_sections)
        if invent_sections:
            save_sections(index, graph, originals)
        for batch in make_batches(originals, turns, order, graph):
            save_skills(index, graph, batch)
            made += len(batch)
    return made


def main() -> None:
    """Enlarge, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("skills", type=int)
    parser.add_argument("--invent-sections", action="store_true")
    given = parser.parse_args()
    started = time.monotonic()
    shutil.copytree(given.home, given.target, ignore=shutil.ignore_patterns("*.sock"))
    identity = encoder_identity(EncoderSettings())
    with (
        closing(SqliteSkillGraph(given.target / "graph.db", writable=True)) as graph,
        closing(LocalSearchIndex(given.target / "index", *identity, writable=True)) as index,
    ):
        ids = sorted(key.skill_id for key in index.list_keys())
        add_sources(graph, graph)
        made = enlarge(index, graph, given.skills, invent_sections=given.invent_sections)
        links = copy_links(graph, graph, ids, given.skills)
    seconds = round(time.monotonic() - started)
    print(json.dumps({"made": made, "links": links, "s": seconds}))


if __name__ == "__main__":
    main()
