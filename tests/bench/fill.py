"""Copy the index of an embedded library into Elasticsearch, for benchmarks of large libraries.

    python -m tests.bench.fill HOME URL [--prefix NAME] [--processes N]

HOME     an embedded library, searchable; nothing of it is encoded again
URL      of Elasticsearch
PREFIX   how its indices begin there, `skillbus` unless given
N        processes that analyse and write side by side, 2 unless given

What is there already is left alone, so that a second run goes on where a first one ended. The
catalog and the links are not copied. Prints what was done as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path

from config.settings import EncoderSettings, ServerSettings
from search.elastic.index import ElasticSearchIndex
from search.local import LocalSearchIndex
from search.models import encoder_identity
from search.protocol import SearchIndex
from skills.record import RevisionKey
from tasks.reindex import Copier, Progress


def copy_index(
    source: SearchIndex,
    target: SearchIndex,
    model: str,
    keys: Sequence[RevisionKey] | None = None,
    progress: Progress | None = None,
) -> int:
    """Copy revisions (all unless given) with their vectors; returns how many were missing."""
    return Copier(source, target, model).copy(keys or source.keys(), progress)


def open_pair(home: Path, url: str, prefix: str) -> tuple[LocalSearchIndex, ElasticSearchIndex]:
    """The embedded index and the one in Elasticsearch, of the encoder that ships."""
    identity = encoder_identity(EncoderSettings().model)
    servers = ServerSettings(
        broker="redis://unused:1/0",
        elasticsearch=url,
        elasticsearch_prefix=prefix,
        neo4j="bolt://unused:1",
        timeout_seconds=60,
    )
    source = LocalSearchIndex(home / "index", *identity, writable=False)
    target = ElasticSearchIndex(servers, *identity, writable=True, caching=False)
    target.ensure()
    return source, target


def _copy_part(work: tuple[Path, str, str, int, int]) -> int:
    home, url, prefix, part, parts = work
    source, target = open_pair(home, url, prefix)
    model = encoder_identity(EncoderSettings().model).model
    copied = copy_index(source, target, model, sorted(source.keys())[part::parts])
    source.close()
    target.close()
    return copied


def main() -> None:
    """Copy, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("url")
    parser.add_argument("--prefix", default="skillbus")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    started = time.monotonic()
    source, target = open_pair(given.home, given.url, given.prefix)
    revisions = len(source.keys())
    parts = [
        (given.home, given.url, given.prefix, part, given.processes)
        for part in range(given.processes)
    ]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        copied = sum(pool.map(_copy_part, parts))
    seconds = time.monotonic() - started
    print(
        json.dumps(
            {
                "revisions": revisions,
                "copied": copied,
                "there": len(target.keys()),
                "seconds": round(seconds, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
