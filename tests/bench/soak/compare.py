"""The library that the servers hold in the end, against one that is made at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from config.settings import Settings
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, SkillState
from search.elastic.index import ElasticsearchIndex
from search.models.load_models import encoder_identity, load_encoder
from search.protocol import SearchIndex
from search.skill_analysis import skill_texts
from skills.events import SourceChanged, new_event
from skills.record import ParsedSkill, RevisionKey
from tasks.encode import supports_language
from tasks.journal.protocol import job_id
from tasks.policies import LINK, PLAN
from tests.bench.edit import open_library
from workers.backend.home import create_home
from workers.backend.stores import open_graph, open_index

LEAST_COSINE = 0.99
"""Of a stored vector and one that is computed now: stores keep vectors with fewer bits."""

_AT_ONCE = 200
_SHOWN = 5
_ENCODED = 60
_DELETED_SECONDS = 240.0
"""Superseded revisions are deleted by a sweep, once a minute, when they have been kept."""


@dataclass
class Differences:
    """By kind, how many skills differ and a few of them."""

    counts: dict[str, int] = field(default_factory=dict)
    shown: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        """Count one."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= _SHOWN:
            self.shown.setdefault(kind, []).append(text[:600])

    def report(self, **more: Any) -> dict[str, Any]:
        """As part of the report."""
        return {"passed": not self.counts, **more, "counts": self.counts, "examples": self.shown}


def make_reference(text: Path, source_ids: Sequence[str], home: Path) -> float:
    """Make an embedded library of the folders at once, without vectors; seconds that took.

    Links do not depend on vectors.
    """
    started = time.monotonic()
    create_home(home)
    with ExitStack() as stack:
        services, tasks = open_library(home, stack)
        for source_id in source_ids:
            changed = SourceChanged(source_id=source_id, root=str(text / source_id))
            event = new_event(changed, "skillbus/bench")
            services.journal.add_job(event, "event")
            tasks.send(PLAN.name, [job_id(event)])
            tasks.run(services)
        while services.graph.list_awaiting_linking(1):
            tasks.send(LINK.name, [])
            tasks.run(services)
    return round(time.monotonic() - started, 1)


def compare(served: Settings, home: Path) -> dict[str, Any]:
    """Skills, hashes, parsed texts and links of the servers and of the reference."""
    found = Differences()
    links = 0
    with ExitStack() as stack:
        graphs, indices = [], []
        for settings in (served, Settings(home=home)):
            graphs.append(open_graph(settings, stack, writable=False))
            indices.append(open_index(settings, stack, writable=False))
        entries = [_list_entries(graph) for graph in graphs]
        ids = sorted(entries[0].keys() | entries[1].keys())
        for batch in _batches(ids):
            here, there = (
                _read(graph, index, {one: known[one] for one in batch if one in known})
                for graph, index, known in zip(graphs, indices, entries, strict=True)
            )
            links += sum(len(one["links"]) for one in there.values())
            for skill_id in batch:
                _compare_skill(skill_id, here.get(skill_id), there.get(skill_id), found)
    return found.report(skills=len(ids), links_of_skills=links)


def _list_entries(graph: SkillGraph) -> dict[str, CatalogEntry]:
    return {
        entry.skill_id: entry
        for entry in graph.get_entries()
        if entry.state is not SkillState.REMOVED
    }


def _read(
    graph: SkillGraph, index: SearchIndex, entries: dict[str, CatalogEntry]
) -> dict[str, dict[str, Any]]:
    """What a library holds of some skills, apart from numbers and times."""
    links = graph.get_links(list(entries))
    published = [RevisionKey(one.skill_id, one.seq) for one in entries.values() if one.seq]
    revisions = index.get_revisions(published)
    read = {}
    for skill_id, entry in entries.items():
        revision = revisions.get(RevisionKey(skill_id, entry.seq))
        read[skill_id] = {
            "state": entry.state,
            "reason": entry.reason,
            "content_hash": entry.content_hash,
            "name": entry.name,
            "description": entry.description,
            "safety_level": entry.safety_level,
            "tokens": entry.tokens,
            "text": None if revision is None else _drop_findings(revision.parsed),
            "section_hashes": None if revision is None else revision.section_hashes,
            "links": {
                (one.owner, one.source, one.target, str(one.type), round(one.weight, 6))
                for one in links[skill_id]
            },
        }
    return read


def _drop_findings(parsed: ParsedSkill) -> ParsedSkill:
    """A skill without what was found in it: a later scan writes the level into the catalog only."""
    return replace(parsed, record=replace(parsed.record, safety=(), safety_level=0, scanner=0))


def _compare_skill(
    skill_id: str, here: dict[str, Any] | None, there: dict[str, Any] | None, found: Differences
) -> None:
    if here is None or there is None:
        found.add("missing" if here is None else "too many", skill_id)
        return
    for name, value in here.items():
        other = there[name]
        if value == other:
            continue
        if name == "links":
            text = f"too many {sorted(value - other)[:2]}, missing {sorted(other - value)[:2]}"
        else:
            text = f"{str(value)[:120]!r} is not {str(other)[:120]!r}"
        found.add(name, f"{skill_id}: {text}")


def compare_vectors(served: Settings, *, sections: bool) -> dict[str, Any]:
    """Whether every published skill has its vectors, and those of the newest ones are right.

    sections: whether its sections are to have them too.
    """
    found = Differences()
    with ExitStack() as stack:
        entries = [one for one in _list_entries(_graph(served, stack)).values() if one.seq]
        index = _open_index(served, stack)
        keys = [RevisionKey(one.skill_id, one.seq) for one in entries]
        for batch in _batches(keys):
            vectors = index.get_skill_vectors(batch)
            for key in batch:
                if key not in vectors:
                    found.add("no skill vectors", key.skill_id)
            if sections:
                _check_sections(index, batch, found)
        newest = sorted(keys, key=lambda key: -key.seq)[:_ENCODED]
        _check_cosines(served, index, newest, found)
        left = _wait_for_deletion(index, set(keys))
        for key in left:
            found.add("revisions that nothing points to", f"{key.skill_id}@{key.seq}")
    return found.report(skills=len(keys), encoded_again=len(newest))


def _graph(served: Settings, stack: ExitStack) -> SkillGraph:
    return open_graph(served, stack, writable=False)


def _open_index(served: Settings, stack: ExitStack) -> SearchIndex:
    identity = encoder_identity(served.encoder)
    index = ElasticsearchIndex(
        served.servers, identity.model, identity.dimension, writable=False, caching=False
    )
    stack.callback(index.close)
    return index


def _check_sections(index: SearchIndex, keys: Sequence[RevisionKey], found: Differences) -> None:
    revisions, vectors = index.get_revisions(keys), index.get_section_vectors(keys)
    for key in keys:
        rows = len(vectors[key]) if key in vectors else 0
        if key in revisions and rows != len(revisions[key].section_hashes):
            wanted = len(revisions[key].section_hashes)
            found.add("section vectors", f"{key.skill_id}: {rows} of {wanted}")


def _check_cosines(
    served: Settings, index: SearchIndex, keys: Sequence[RevisionKey], found: Differences
) -> None:
    encoder = load_encoder(served.encoder)
    stored = index.get_skill_vectors(keys)
    for key, revision in index.get_revisions(keys).items():
        if key not in stored or not supports_language(encoder, revision.parsed):
            continue
        now = encoder.encode_texts(list(skill_texts(revision.parsed)))
        for row, vector in enumerate(stored[key]):
            size = float(np.linalg.norm(vector) * np.linalg.norm(now[row])) or 1.0
            if (cosine := float(vector @ now[row]) / size) < LEAST_COSINE:
                found.add("vectors of another text", f"{key.skill_id}: cosine {cosine:.3f}")


def _wait_for_deletion(index: SearchIndex, published: set[RevisionKey]) -> list[RevisionKey]:
    """Revisions that the catalog does not name, once the sweep had the time to delete them."""
    end = time.monotonic() + _DELETED_SECONDS
    while left := sorted(set(index.list_keys()) - published):
        if time.monotonic() > end:
            break
        time.sleep(5.0)
    return left


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
