"""Make an embedded library many times the size of another one, from it.

    python -m tests.bench.enlarge_embedded HOME TARGET SKILLS

TARGET, which must not exist, becomes a copy of HOME, no process of which may run; then the
revisions of HOME are copied again and again, as `tests.bench.enlarge` does, until there are SKILLS
of them. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from config.settings import EncoderSettings
from graph.local.store import SqliteSkillGraph
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
from search.protocol import SkillDocument, Vector
from tests.bench.enlarge import copy_links, copy_revision, list_turns, renamed, with_noise

_AT_ONCE = 200


def enlarge(index: LocalSearchIndex, graph: SqliteSkillGraph, skills: int) -> int:
    """Add copies of all revisions until there are `skills` of them; returns how many were added."""
    made, keys = 0, sorted(index.list_keys())
    for turn, count in list_turns(len(keys), skills):
        for start in range(0, count, _AT_ONCE):
            batch = keys[start : min(start + _AT_ONCE, count)]
            revisions, vectors = index.get_revisions(batch), index.get_skill_vectors(batch)
            sections = index.get_section_vectors(batch)
            copies = [
                pair
                for key, seq in zip(batch, graph.allocate_sequence(len(batch)), strict=True)
                for pair in copy_revision(revisions[key], vectors[key], turn, seq)
            ]
            index.add([document for document, _ in copies])
            graph.publish([publication for _, publication in copies])
            originals = {renamed(key.skill_id, turn): sections.get(key) for key in batch}
            for document, _ in copies:
                save_sections(index, graph, document, originals[document.key.skill_id])
            made += len(copies)
    return made


def save_sections(
    index: LocalSearchIndex, graph: SqliteSkillGraph, copy: SkillDocument, vectors: Vector | None
) -> None:
    """Give a copy the section vectors of the original, with noise, in any order; nothing if there
    are none."""
    count = len(copy.section_hashes)
    if vectors is None or not len(vectors) or not count:
        return
    moved = with_noise(np.resize(vectors, (count, vectors.shape[1])), copy.key.seq)
    index.save_section_vectors(copy.key, copy.section_hashes, moved)
    graph.mark_embedded([copy.key])


def main() -> None:
    """Enlarge, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("skills", type=int)
    given = parser.parse_args()
    started = time.monotonic()
    shutil.copytree(given.home, given.target)
    identity = encoder_identity(EncoderSettings())
    with (
        closing(SqliteSkillGraph(given.target / "graph.db", writable=True)) as graph,
        closing(LocalSearchIndex(given.target / "index", *identity, writable=True)) as index,
    ):
        ids = sorted(entry.skill_id for entry in graph.get_entries())
        made = enlarge(index, graph, given.skills)
        links = copy_links(graph, graph, ids, given.skills)
    seconds = round(time.monotonic() - started)
    print(json.dumps({"made": made, "links": links, "s": seconds}))


if __name__ == "__main__":
    main()
