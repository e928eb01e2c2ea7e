"""Copy an embedded library into the servers that the settings name, to compare and measure.

    python -m tests.bench.fill HOME [--processes N] [--index-only]

HOME           an embedded library, searchable; nothing of it is encoded again. What is in
               Elasticsearch already is left alone, so that a second run goes on where one ended;
               Neo4j has to be empty
--processes    that analyse and write side by side, 2 unless given
--index-only   leaves the catalog and the links out

Prints what was done as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from config.load_settings import load_settings
from config.server_settings import ServerSettings
from config.settings import EncoderSettings
from graph.entry_filter import EntryFilter
from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph
from graph.records import CatalogEntry, LinkFeatures, Publication, SkillState
from search.elastic.index import ElasticsearchIndex
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
from search.protocol import SearchIndex
from skills.record import RevisionKey
from skills.scanner.rule import list_rules
from tasks.ingest.upgrade.reindex import IndexCopier, ReportProgress
from workers.backend.stores import open_graph

_AT_ONCE = 200
_Item = TypeVar("_Item")


def copy_graph(source: SkillGraph, target: SkillGraph) -> None:
    """Copy sources, cursors, skills and links into an empty catalog, through its own calls.

    Left behind: how often skills were used, and which wait for ingest.
    """
    entries = source.get_entries()
    newest = max((max(entry.seq, entry.requested_seq) for entry in entries), default=0)
    target.allocate_sequence(max(0, newest + 1 - target.allocate_sequence(1).start))
    for origin in source.list_sources():
        target.save_source(origin)
        target.update_file_signatures(
            origin.source_id, source.get_file_signatures(origin.source_id), ()
        )
    published = [entry for entry in entries if entry.state is SkillState.PUBLISHED]
    rules = _list_rules(source, len(published))
    for some in _batches(published):
        facts = source.get_link_features([entry.skill_id for entry in some])
        target.publish(
            [_publication(one, facts[one.skill_id], rules.get(one.skill_id, [])) for one in some]
        )
    target.set_rules_version(source.get_rules_version())
    target.mark_embedded([RevisionKey(one.skill_id, one.seq) for one in published if one.embedded])
    failed = [entry for entry in entries if entry.state is SkillState.FAILED]
    seq = newest + 1
    target.record_failures(
        [(RevisionKey(e.skill_id, seq), e.source_id, e.path, e.reason) for e in failed]
    )
    removed = [entry for entry in entries if entry.state is SkillState.REMOVED]
    target.remove([RevisionKey(entry.skill_id, seq) for entry in removed])
    for some in _batches(published):
        target.replace_links(source.get_owned_links([entry.skill_id for entry in some]), [])
    target.replace_links({}, target.list_awaiting_linking(len(published)))
    unlinked = [skill_id for skill_id, _ in source.list_awaiting_linking(len(published))]
    for ids in _batches(unlinked):
        target.mark_for_linking(ids)


def _list_rules(source: SkillGraph, limit: int) -> Mapping[str, list[str]]:
    """The rules that found something, by skill."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for rule in list_rules():
        for entry in source.list_entries(EntryFilter(above_level=0, rule=rule), "", limit):
            found[entry.skill_id].append(rule)
    return found


def _publication(entry: CatalogEntry, facts: LinkFeatures, rules: Sequence[str]) -> Publication:
    return Publication(
        key=RevisionKey(entry.skill_id, entry.seq),
        source_id=entry.source_id,
        path=entry.path,
        content_hash=entry.content_hash,
        name=entry.name,
        description=entry.description,
        warnings=entry.warnings,
        safety_level=entry.safety_level,
        scanner_version=entry.scanner_version,
        tokens=entry.tokens,
        language=entry.language,
        licence=entry.licence,
        mentions=facts.mentions,
        body_terms=facts.body_terms,
        description_terms=facts.description_terms,
        has_vectors=entry.has_vectors,
        rules=tuple(rules),
        has_scripts=entry.has_scripts,
    )


def _batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


def copy_index(
    source: SearchIndex,
    target: SearchIndex,
    model: str,
    keys: Sequence[RevisionKey] | None = None,
    progress: ReportProgress | None = None,
) -> int:
    """Copy revisions (all unless given) with their vectors; returns how many were missing."""
    return IndexCopier(source, target, model).copy_revisions(keys or source.list_keys(), progress)


def open_pair(home: Path, servers: ServerSettings) -> tuple[LocalSearchIndex, ElasticsearchIndex]:
    """The embedded index and the one in Elasticsearch, of the encoder that ships."""
    identity = encoder_identity(EncoderSettings())
    source = LocalSearchIndex(home / "index", *identity, writable=False)
    target = ElasticsearchIndex(servers, *identity, writable=True, caching=False)
    target.ensure()
    return source, target


def _copy_part(work: tuple[Path, ServerSettings, int, int]) -> int:
    home, servers, part, parts = work
    source, target = open_pair(home, servers)
    model = encoder_identity(EncoderSettings()).model
    copied = copy_index(source, target, model, sorted(source.list_keys())[part::parts])
    source.close()
    target.close()
    return copied


def main() -> None:
    """Copy, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--index-only", action="store_true")
    given = parser.parse_args()
    servers = load_settings().servers
    started = time.monotonic()
    source, target = open_pair(given.home, servers)
    parts = [(given.home, servers, part, given.processes) for part in range(given.processes)]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        copied = sum(pool.map(_copy_part, parts))
    report: dict[str, object] = {
        "revisions": len(source.list_keys()),
        "copied": copied,
        "there": len(target.list_keys()),
        "index_seconds": round(time.monotonic() - started, 1),
    }
    if not given.index_only:
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            catalog = SqliteSkillGraph(given.home / "graph.db", writable=False)
            stack.callback(catalog.close)
            copy_graph(catalog, open_graph(load_settings(), stack, writable=True))
        report["graph_seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
