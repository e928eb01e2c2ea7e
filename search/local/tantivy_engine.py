"""Lexical engine of the embedded index: tantivy over token fields."""

from __future__ import annotations

import heapq
import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config.errors import PermanentError, TransientError
from search.protocol import FILTER_NAMES, PREFIX_FIELDS, TEXT_FIELDS, Filters
from search.scoring.weights import FIELD_BOOSTS

MAX_QUERY_TERMS = 60
"""Only the heaviest terms go into one engine query; exact scores use all of them."""

TEXT_BOOSTS = dict(zip(TEXT_FIELDS, FIELD_BOOSTS, strict=True))
"""The fields of a skill's own text with their boosts."""

COMPLETED_BOOSTS = {"completed": 1.0}
"""The field of texts that a language model wrote, which is searched alone."""

_WRITER_BYTES = 50_000_000


class TantivyEngine:
    """Documents of token fields and four raw filters, by row number.

    boosts: the token fields with their boosts.

    The writer lock, which one process can hold, is taken at the first write. Searches see the
    commits of other processes. The caller must serialise writes.
    """

    def __init__(
        self, folder: Path, *, writable: bool, boosts: Mapping[str, float] = TEXT_BOOSTS
    ) -> None:
        import tantivy  # not with this module: distributed deployments do without it

        self._tantivy = tantivy
        self._folder = folder
        self._writable = writable
        self._boosts = boosts
        self._writer: Any = None
        self._seen: tuple[int, int] | None = None
        self._reload_lock = threading.Lock()
        self._schema = _schema(tantivy, boosts)
        with self._translate_errors():
            self._index = self._open()

    def _open(self) -> Any:
        if self._writable:
            self._folder.mkdir(parents=True, exist_ok=True)
            return self._tantivy.Index(self._schema, path=str(self._folder), reuse=True)
        if not self._tantivy.Index.exists(str(self._folder)):
            raise PermanentError(f"there is no search index at {self._folder}; ingest first")
        return self._tantivy.Index.open(str(self._folder))

    # -- writing

    def write(self, documents: Iterable[tuple[int, Sequence[Sequence[str]], Filters]]) -> None:
        """Write (number, token fields, filters) durably; replaces documents of the same number."""
        with self._writing() as writer:
            for number, fields, filters in documents:
                writer.delete_documents_by_term("row", str(number))
                writer.add_document(self._document(number, fields, filters))
            writer.commit()
        self._reload()

    def delete_documents(self, numbers: Iterable[int]) -> None:
        """Delete documents durably; missing numbers are ignored."""
        with self._writing() as writer:
            for number in numbers:
                writer.delete_documents_by_term("row", str(number))
            writer.commit()
        self._reload()

    def rewrite(self, documents: Iterable[tuple[int, Sequence[Sequence[str]], Filters]]) -> None:
        """Replace all documents by these in one commit, and delete the files of the former ones:
        the term dictionary of a file keeps the terms of documents that were deleted from it."""
        with self._writing() as writer:
            writer.delete_all_documents()
            for number, fields, filters in documents:
                writer.add_document(self._document(number, fields, filters))
            writer.commit()
        self._reload()
        self._collect_garbage()

    def _collect_garbage(self) -> None:
        with self._writing() as writer:
            writer.garbage_collect_files()

    def _document(self, number: int, fields: Sequence[Sequence[str]], filters: Filters) -> Any:
        document = self._tantivy.Document()
        document.add_unsigned("number", number)
        document.add_text("row", str(number))
        for name, tokens in zip(self._boosts, fields, strict=True):
            document.add_text(name, " ".join(tokens))
        for name in FILTER_NAMES:
            for value in getattr(filters, name):
                document.add_text(f"filter_{name}", value)
        return document

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Borrow the writer; a failed write discards it, and the next call opens another."""
        if not self._writable:
            raise PermanentError("this search index was opened for reading only")
        with self._translate_errors():
            if self._writer is None:
                self._writer = self._index.writer(_WRITER_BYTES, 1)
            try:
                yield self._writer
            except BaseException:
                self._writer = None
                raise

    # -- reading

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether a folder holds an engine."""
        return (folder / "meta.json").exists()

    def search(
        self, terms: Mapping[str, float], limit: int, filters: Filters, prefix: str = ""
    ) -> list[tuple[int, float]]:
        """Return (number, score) of the best documents with any of the terms, best first.

        prefix: see `LexicalSearch`.
        """
        with self._translate_errors():
            self._reload_if_changed()
            searcher = self._index.searcher()
            query = self._query(searcher, terms, filters, prefix)
            if query is None or limit < 1:
                return []
            found = searcher.search(query, limit, count=False).hits
            numbers = searcher.fast_field_values("number", [address for _, address in found])
        return [(int(n), float(score)) for n, (score, _) in zip(numbers, found, strict=True)]

    def numbers(self) -> set[int]:
        """Return the number of every document."""
        with self._translate_errors():
            self._reload_if_changed()
            searcher = self._index.searcher()
            if not searcher.num_docs:
                return set()
            everything = self._tantivy.Query.all_query()
            found = searcher.search(everything, searcher.num_docs, count=False).hits
            values = searcher.fast_field_values("number", [address for _, address in found])
        return {int(number) for number in values}

    def missing_numbers(self, numbers: Iterable[int]) -> list[int]:
        """Return the given numbers that no document has."""
        with self._translate_errors():
            self._reload_if_changed()
            searcher = self._index.searcher()
            return [number for number in numbers if not searcher.doc_freq("row", str(number))]

    def _query(
        self, searcher: Any, terms: Mapping[str, float], filters: Filters, prefix: str
    ) -> Any:
        query_type, must, should = (
            self._tantivy.Query,
            self._tantivy.Occur.Must,
            self._tantivy.Occur.Should,
        )
        clauses = []
        for term, weight in self._select_terms(searcher, terms):
            for name, field_weight in self._boosts.items():
                match = query_type.term_query(self._schema, name, term, "freq")
                clauses.append((should, query_type.boost_query(match, weight * field_weight)))
        for name in PREFIX_FIELDS if prefix else ():
            match = query_type.regex_query(self._schema, name, f"{re.escape(prefix)}.*")
            clauses.append((should, query_type.boost_query(match, self._boosts[name])))
        if not clauses:
            return None
        query = query_type.boolean_query(clauses)
        for name in FILTER_NAMES:
            values = getattr(filters, name)
            if values:
                allowed = query_type.term_set_query(self._schema, f"filter_{name}", list(values))
                silent = query_type.const_score_query(allowed, 0.0)
                query = query_type.boolean_query([(must, query), (must, silent)])
        return query

    def _select_terms(self, searcher: Any, terms: Mapping[str, float]) -> list[tuple[str, float]]:
        present = [(term, weight) for term, weight in terms.items() if term and weight > 0]
        if len(present) <= MAX_QUERY_TERMS:
            return present
        total = searcher.num_docs + 1

        def mass(item: tuple[str, float]) -> float:
            frequency = max(searcher.doc_freq(name, item[0]) for name in self._boosts)
            return item[1] * math.log(total / (frequency + 0.5)) if frequency else 0.0

        return heapq.nlargest(MAX_QUERY_TERMS, present, key=mass)

    def _reload_if_changed(self) -> None:
        """Make the last commit of any process visible."""
        status = (self._folder / "meta.json").stat()
        if (status.st_ino, status.st_mtime_ns) != self._seen:
            self._reload()

    def _reload(self) -> None:
        with self._reload_lock, self._translate_errors():
            status = (self._folder / "meta.json").stat()
            self._index.reload()
            self._seen = (status.st_ino, status.st_mtime_ns)

    def close(self) -> None:
        """Wait for segment merges and release the writer lock."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._translate_errors():
                writer.wait_merging_threads()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors by message: tantivy raises ValueError for nearly everything."""
        try:
            yield
        except (ValueError, OSError, RuntimeError) as error:
            message = str(error)
            if "LockBusy" in message or "Lockfile" in message:
                raise TransientError(
                    f"another process writes the search index at {self._folder}"
                ) from error
            if isinstance(error, OSError) or "No space" in message or "os error" in message:
                raise TransientError(f"the search index cannot be written: {message}") from error
            raise PermanentError(
                f"the lexical index at {self._folder} is damaged ({message}); delete that "
                "folder and it is built again"
            ) from error


def _schema(tantivy: Any, fields: Iterable[str]) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("number", fast=True)
    builder.add_text_field("row", tokenizer_name="raw", index_option="basic")
    for name in fields:
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    for name in FILTER_NAMES:
        builder.add_text_field(f"filter_{name}", tokenizer_name="raw", index_option="basic")
    return builder.build()
