"""Single searches of an index."""

from __future__ import annotations

from collections.abc import Mapping

from search.protocol import Filters, Hit, LexicalSearch, SearchIndex, Vector, VectorSearch


def search_lexical(
    index: SearchIndex, terms: Mapping[str, float], limit: int, filters: Filters
) -> list[Hit]:
    """Hits by words."""
    return index.search_many([LexicalSearch(terms, limit, filters)])[0]


def search_vectors(
    index: SearchIndex, vector: Vector, vector_field: int, limit: int, filters: Filters
) -> list[Hit]:
    """Hits by one of the skill vectors."""
    return index.search_many([VectorSearch(vector, vector_field, limit, filters)])[0]
