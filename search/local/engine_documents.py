"""Documents of the lexical engines, made from the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from search.blob_codec import unpack_filters
from search.local.revision_store import SQL_BATCH, RevisionStore
from search.local.tantivy_engine import EngineDocument
from search.protocol import TEXT_FIELDS
from search.skill_analysis import analyse_skill
from skills import record_codec
from skills.batches import batches
from skills.record import RevisionKey

OWN_TEXT = slice(len(TEXT_FIELDS))
"""The part of a document's `fields` that the main engine and its delta hold."""

COMPLETED = slice(len(TEXT_FIELDS), None)
"""The part that the engine of completions holds."""


def read_documents(
    store: RevisionStore, rows: Mapping[int, RevisionKey], fields: slice
) -> Iterator[list[EngineDocument]]:
    """Yield the documents of rows, by row number, that the store has, some at a time."""
    for batch in batches(rows, SQL_BATCH):
        stored = store.columns([rows[number] for number in batch], ("parsed", "filters"))
        documents = []
        for number in batch:
            if (row := stored.get(rows[number])) is not None:
                analysis = analyse_skill(record_codec.load(row[0]))
                filters = unpack_filters(str(row[1]))
                documents.append(EngineDocument(number, analysis.fields[fields], filters))
        yield documents
