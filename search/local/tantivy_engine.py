"""Lexical engine of the embedded index: tantivy over token fields."""

from __future__ import annotations

import heapq
import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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


class Collection(NamedTuple):
    """Statistics of documents for BM25.

    documents: number of documents. frequency: function (field, term) -> number of documents with
    it. tantivy counts deleted documents in both until it merges their segment.
    """

    documents: int
    frequency: Callable[[str, str], int]

    def idf(self, field: str, term: str) -> float:
        """Return the inverse document frequency, as tantivy computes it."""
        frequency = self.frequency(field, term)
        return math.log1p((max(self.documents - frequency, 0) + 0.5) / (frequency + 0.5))

    def select_terms(self, terms: Mapping[str, float], fields: Iterable[str]) -> dict[str, float]:
        """Return the MAX_QUERY_TERMS terms of the highest weight x idf, or all if there are fewer;
        terms without a weight are left out."""
        present = {term: weight for term, weight in terms.items() if term and weight > 0}
        if len(present) <= MAX_QUERY_TERMS:
            return present

        def mass(term: str) -> float:
            frequency = max(self.frequency(field, term) for field in fields)
            rarity = (max(self.documents, frequency) + 1) / (frequency + 0.5)
            return present[term] * math.log(rarity) if frequency else 0.0

        return {term: present[term] for term in heapq.nlargest(MAX_QUERY_TERMS, present, key=mass)}


class EngineDocument(NamedTuple):
    """A revision by its row number, with the token streams of the engine's fields."""

    number: int
    fields: Sequence[Sequence[str]]
    filters: Filters


class TantivyEngine:
    """Documents of token fields and four raw filters, by row number.

    boosts: the token fields with their boosts. stored: keep the tokens, for `documents`.

    The writer lock, which one process can hold, is taken at the first write. Searches see the
    commits of other processes. The caller must serialise writes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        writable: bool,
        boosts: Mapping[str, float] = TEXT_BOOSTS,
        stored: bool = False,
    ) -> None:
        import tantivy  # not with this module: distributed deployments do without it

        self._tantivy = tantivy
        self._folder = folder
        self._writable = writable
        self._boosts = boosts
        self._writer: Any = None
        self._seen: tuple[int, int] | None = None
        self._documents = 0
        self._reload_lock = threading.Lock()
        self._schema = _schema(tantivy, boosts, stored=stored)
        with self._translate_errors():
            self._index = self._open()

    def _open(self) -> Any:
        if self._writable:
            self._folder.mkdir(parents=True, exist_ok=True)
            return self._tantivy.Index(self._schema, path=str(self._folder), reuse=True)
        if not self.exists(self._folder):
            raise PermanentError(
                f"the lexical index at {self._folder} is missing; `skillbus sync` or `skillbus "
                "serve` builds it again"
            )
        return self._tantivy.Index.open(str(self._folder))

    # -- writing

    def write(self, documents: Iterable[EngineDocument]) -> None:
        """Write documents durably; replaces documents of the same number."""
        with self._writing() as writer:
            for document in documents:
                writer.delete_documents_by_term("row", str(document.number))
                writer.add_document(self._encode(document))
            writer.commit()
        self._reload()

    def delete_documents(self, numbers: Iterable[int]) -> None:
        """Delete documents durably; missing numbers are ignored."""
        numbers = set(numbers)
        present = numbers.difference(self.missing_numbers(numbers))
        if not present:  # since a commit takes milliseconds
            return
        with self._writing() as writer:
            for number in present:
                writer.delete_documents_by_term("row", str(number))
            writer.commit()
        self._reload()

    def rewrite(self, documents: Iterable[EngineDocument]) -> None:
        """Replace all documents by these in one commit, and delete the files of the former ones:
        the term dictionary of a file keeps the terms of documents that were deleted from it.

        The writer is closed before: a merge would keep files, and a writer that has deleted all
        documents overlooks some of its later deletions.
        """
        self.close()
        with self._writing() as writer:
            writer.delete_all_documents()
            for document in documents:
                writer.add_document(self._encode(document))
            writer.commit()
        self._reload()
        self._collect_garbage()

    def _collect_garbage(self) -> None:
        with self._writing() as writer:
            writer.garbage_collect_files()

    def _encode(self, document: EngineDocument) -> Any:
        encoded = self._tantivy.Document()
        encoded.add_unsigned("number", document.number)
        encoded.add_text("row", str(document.number))
        for name, tokens in zip(self._boosts, document.fields, strict=True):
            encoded.add_text(name, " ".join(tokens))
        for name in FILTER_NAMES:
            for value in getattr(document.filters, name):
                encoded.add_text(f"filter_{name}", value)
        return encoded

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
        self,
        terms: Mapping[str, float],
        limit: int,
        filters: Filters,
        prefix: str = "",
        collection: Collection | None = None,
    ) -> list[tuple[int, float]]:
        """Return (number, score) of the best documents with any of the terms, best first.

        prefix: see `LexicalSearch`. collection: replaces the documents of this engine in the idf.
        """
        with self._translate_errors():
            self._reload_if_changed()
            searcher = self._index.searcher()
            query = self._query(searcher, terms, filters, prefix, collection)
            return [] if query is None else _search(searcher, query, limit)

    def search_filters(self, limit: int, filters: Filters) -> list[tuple[int, float]]:
        """Return (number, score) of any documents that pass the filters."""
        with self._translate_errors():
            self._reload_if_changed()
            query = self._narrow(self._tantivy.Query.all_query(), filters)
            return _search(self._index.searcher(), query, limit)

    def numbers(self) -> set[int]:
        """Return the number of every document."""
        with self._translate_errors():
            self._reload_if_changed()
            searcher = self._index.searcher()
            values = searcher.fast_field_values("number", self._addresses(searcher))
        return {int(number) for number in values}

    def documents(self) -> Iterator[EngineDocument]:
        """Yield every document of an engine with `stored`."""
        with self._translate_errors():
            searcher = self._index.searcher()
            for address in self._addresses(searcher):
                values = searcher.doc(address).to_dict()
                yield EngineDocument(
                    values["number"][0],
                    [values[name][0].split(" ") for name in self._boosts],
                    Filters(
                        **{name: tuple(values.get(f"filter_{name}", ())) for name in FILTER_NAMES}
                    ),
                )

    def _addresses(self, searcher: Any) -> list[Any]:
        if not searcher.num_docs:
            return []
        everything = self._tantivy.Query.all_query()
        found = searcher.search(everything, searcher.num_docs, count=False).hits
        return [address for _, address in found]

    def collection(self) -> Collection:
        """Return the statistics of the documents."""
        with self._translate_errors():
            self._reload_if_changed()
            return Collection(self._documents, self._index.searcher().doc_freq)

    def count(self) -> int:
        """Return the number of documents."""
        with self._translate_errors():
            self._reload_if_changed()
            return int(self._index.searcher().num_docs)

    def missing_numbers(self, numbers: Iterable[int]) -> list[int]:
        """Return the given numbers that no document has."""
        numbers = list(numbers)
        with self._translate_errors():
            self._reload_if_changed()
            # Not by document frequencies, which count deleted documents.
            rows = self._tantivy.Query.term_set_query(self._schema, "row", [*map(str, numbers)])
            found = dict(_search(self._index.searcher(), rows, len(numbers)))
        return [number for number in numbers if number not in found]

    def _query(
        self,
        searcher: Any,
        terms: Mapping[str, float],
        filters: Filters,
        prefix: str,
        collection: Collection | None,
    ) -> Any:
        query_type, should = self._tantivy.Query, self._tantivy.Occur.Should
        own = Collection(self._documents, searcher.doc_freq)
        clauses = []
        for term, weight in (collection or own).select_terms(terms, self._boosts).items():
            for name, field_weight in self._boosts.items():
                boost = weight * field_weight
                if collection is not None:
                    if not own.frequency(name, term):
                        continue
                    boost *= collection.idf(name, term) / own.idf(name, term)
                match = query_type.term_query(self._schema, name, term, "freq")
                clauses.append((should, query_type.boost_query(match, boost)))
        for name in PREFIX_FIELDS if prefix else ():
            match = query_type.regex_query(self._schema, name, f"{re.escape(prefix)}.*")
            clauses.append((should, query_type.boost_query(match, self._boosts[name])))
        if not clauses:
            return None
        return self._narrow(query_type.boolean_query(clauses), filters)

    def _narrow(self, query: Any, filters: Filters) -> Any:
        """Return the query for the documents that also pass the filters."""
        query_type, must = self._tantivy.Query, self._tantivy.Occur.Must
        for name in FILTER_NAMES:
            values = getattr(filters, name)
            if values:
                allowed = query_type.term_set_query(self._schema, f"filter_{name}", list(values))
                silent = query_type.const_score_query(allowed, 0.0)
                query = query_type.boolean_query([(must, query), (must, silent)])
        return query

    def _reload_if_changed(self) -> None:
        """Make the last commit of any process visible."""
        status = (self._folder / "meta.json").stat()
        if (status.st_ino, status.st_mtime_ns) != self._seen:
            self._reload()

    def _reload(self) -> None:
        with self._reload_lock, self._translate_errors():
            file = self._folder / "meta.json"
            status = file.stat()
            self._index.reload()
            segments = json.loads(file.read_bytes())["segments"]
            self._documents = sum(segment["max_doc"] for segment in segments)
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
                "folder: `skillbus sync` or `skillbus serve` then builds it again"
            ) from error


def _search(searcher: Any, query: Any, limit: int) -> list[tuple[int, float]]:
    if limit < 1:
        return []
    found = searcher.search(query, limit, count=False).hits
    numbers = searcher.fast_field_values("number", [address for _, address in found])
    return [(int(n), float(score)) for n, (score, _) in zip(numbers, found, strict=True)]


def _schema(tantivy: Any, fields: Iterable[str], *, stored: bool) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("number", fast=True, stored=stored)
    raw = {"tokenizer_name": "raw", "index_option": "basic"}
    builder.add_text_field("row", **raw)
    for name in fields:
        builder.add_text_field(
            name, tokenizer_name="whitespace", index_option="freq", stored=stored
        )
    for name in FILTER_NAMES:
        builder.add_text_field(f"filter_{name}", stored=stored, **raw)
    return builder.build()
