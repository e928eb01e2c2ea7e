"""Fill servers with a library many times the size of an embedded one, made from it.

    python -m tests.bench.enlarge HOME SKILLS [--processes N]

Every revision of HOME is copied again and again, under another name and with its sections
shuffled, until there are SKILLS of them. Each copy is parsed and analysed as a skill of its own;
its vectors are those of the original with some noise, and its links the original's, among copies
of one round. HOME's own skills have to be there already (`tests.bench.fill`). Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from config.errors import PermanentError
from config.load_settings import load_settings
from config.server_settings import ServerSettings
from graph.links.mentions import find_mentions
from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph
from graph.records import Publication
from search.models.load_models import encoder_identity
from search.protocol import SkillDocument, StoredRevision, Vector
from search.skill_analysis import analyse_skill, body_terms, description_terms, section_text_hashes
from search.text.background_frequencies import load_background
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.bench.fill import open_pair
from workers.backend.stores import open_graph

_AT_ONCE = 200
_NOISE = 0.02
_SECTION = re.compile(r"(?m)^(?=#{1,3} )")
_WORDS = (
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "islet",
    "juniper",
)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one process does: every `parts`-th skill, in these rounds."""

    home: Path
    servers: ServerSettings
    skills: int
    part: int
    parts: int


def renamed(skill_id: str, turn: int) -> str:
    """The id of a skill's copy."""
    return f"{skill_id}-{_WORDS[turn % len(_WORDS)]}-{turn}"


def shuffled(revision: StoredRevision, turn: int) -> bytes:
    """The text of a copy: name and description with another word, sections in another order."""
    record, parsed = revision.parsed.record, revision.parsed
    body = "\n".join(parsed.lines[max(parsed.body_line - 1, 0) :])
    sections = _SECTION.split(body)
    random.Random(f"{revision.key}{turn}").shuffle(sections)
    word = _WORDS[turn % len(_WORDS)]
    header = json.dumps(f"{record.description} ({word} edition {turn})", ensure_ascii=False)
    name = json.dumps(f"{record.name}-{word}", ensure_ascii=False)
    return f"---\nname: {name}\ndescription: {header}\n---\n{''.join(sections)}".encode()


def list_turns(count: int, skills: int) -> Iterator[tuple[int, int]]:
    """(round, skills of it): the last one may be cut."""
    turn, left = 1, skills - count
    while left > 0:
        yield turn, min(left, count)
        turn, left = turn + 1, left - count


def _enlarge(part: _Part) -> int:
    made = 0
    source, target = open_pair(part.home, part.servers)
    catalog = SqliteSkillGraph(part.home / "graph.db", writable=False)
    with contextlib.ExitStack() as stack:
        stack.callback(catalog.close)
        graph = open_graph(load_settings(), stack, writable=True)
        keys = sorted(source.list_keys())
        for turn, count in list_turns(len(keys), part.skills):
            mine = keys[:count][part.part :: part.parts]
            for start in range(0, len(mine), _AT_ONCE):
                batch = mine[start : start + _AT_ONCE]
                revisions, vectors = source.get_revisions(batch), source.get_skill_vectors(batch)
                seqs = graph.allocate_sequence(len(batch))
                copies = [
                    pair
                    for key, seq in zip(batch, seqs, strict=True)
                    for pair in copy_revision(revisions[key], vectors[key], turn, seq)
                ]
                target.add([document for document, _ in copies])
                graph.publish([publication for _, publication in copies])
                made += len(copies)
    return made


def copy_revision(
    original: StoredRevision, vectors: Vector, turn: int, seq: int
) -> Iterator[tuple[SkillDocument, Publication]]:
    """Yield the copy of a revision with its entry in the catalog, or nothing if none can be made.

    vectors: of the original, to which noise is added.
    """
    skill_id = renamed(original.key.skill_id, turn)
    source_id, _, path = skill_id.partition(":")
    try:
        parsed = parse_skill(path, shuffled(original, turn))
    except PermanentError:
        return  # too odd a text to be taken apart and put together again
    analysis, key = analyse_skill(parsed), RevisionKey(skill_id, seq)
    model = encoder_identity(load_settings().encoder).model
    document = SkillDocument(
        key=key,
        content_hash=f"{original.content_hash}-{turn}",
        parsed=parsed,
        fields=analysis.fields,
        forward=analysis.forward,
        passage_terms=analysis.passage_terms,
        vectors=with_noise(vectors, seq) if vectors.any() else vectors,
        section_hashes=section_text_hashes(model, parsed),
        filters=replace(original.filters, source=(source_id,)),
    )
    record, background = parsed.record, load_background()
    yield (
        document,
        Publication(
            key=key,
            source_id=source_id,
            path=path,
            content_hash=document.content_hash,
            name=record.name,
            description=record.description,
            tokens=record.tokens,
            language=record.language,
            licence=record.licence,
            mentions=find_mentions(parsed),
            body_terms=body_terms(analysis, background),
            description_terms=description_terms(analysis, background),
            has_vectors=True,
        ),
    )


def with_noise(vectors: Vector, seed: int) -> Vector:
    """Unit vectors near these."""
    noise = np.random.default_rng(seed).normal(0, _NOISE, vectors.shape)
    moved = (vectors + noise).astype(np.float32)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True))


def copy_links(catalog: SkillGraph, graph: SkillGraph, ids: Sequence[str], skills: int) -> int:
    """Give the copies of each round the links of the originals `ids`, and clear all marks."""
    written = 0
    for turn, count in list_turns(len(ids), skills):
        for batch in _batches(ids[:count]):
            owned = {
                renamed(owner, turn): [
                    replace(
                        link,
                        owner=renamed(link.owner, turn),
                        source=renamed(link.source, turn),
                        target=renamed(link.target, turn),
                    )
                    for link in links
                ]
                for owner, links in catalog.get_owned_links(batch).items()
            }
            graph.replace_links(owned, [])
            written += sum(map(len, owned.values()))
    graph.replace_links({}, graph.list_awaiting_linking(2 * skills))
    return written


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def main() -> None:
    """Enlarge, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("skills", type=int)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    servers, started = load_settings().servers, time.monotonic()
    parts = [
        _Part(given.home, servers, given.skills, part, given.processes)
        for part in range(given.processes)
    ]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        made = sum(pool.map(_enlarge, parts))
    index_seconds = time.monotonic() - started
    with contextlib.ExitStack() as stack:
        catalog = SqliteSkillGraph(given.home / "graph.db", writable=False)
        stack.callback(catalog.close)
        graph = open_graph(load_settings(), stack, writable=True)
        ids = sorted(entry.skill_id for entry in catalog.get_entries())
        links = copy_links(catalog, graph, ids, given.skills)
    seconds = time.monotonic() - started
    report = {"made": made, "skills_s": round(index_seconds), "links": links, "s": round(seconds)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
