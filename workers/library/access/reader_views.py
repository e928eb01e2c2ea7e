"""The stores of a backend, restricted to what one reader may see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from pydantic import TypeAdapter, ValidationError

from config.errors import NotFoundError, UsageError
from config.settings import Settings
from graph.protocol import SkillGraph
from graph.visible_graph import VisibleGraph, find_visible_sources, restrict_graph
from search.protocol import SearchIndex
from search.review_store import ReviewStore
from search.revision_history import RevisionHistory
from search.visible_index import VisibleHistory, VisibleIndex
from skills.access import Reader, parse_groups
from skills.events import describe_validation_error
from skills.events.ids import SourceId
from workers.library.revisions import RevisionReader

_SOURCE_ID: TypeAdapter[str] = TypeAdapter(SourceId)


class ReaderViews(ABC):
    """Base class of backends that restricts their stores to what a reader may see."""

    settings: Settings
    graph: SkillGraph

    @abstractmethod
    def search_index(self) -> SearchIndex:
        """Return the search index, for reading revisions."""

    @abstractmethod
    def history_store(self) -> RevisionHistory:
        """Return the store of superseded revisions."""

    @abstractmethod
    def review_store(self) -> ReviewStore:
        """Return the store of decisions of people about skills."""

    def find_visible_sources(self, reader: Reader) -> frozenset[str] | None:
        """Return the sources whose skills a reader may see now, None for all."""
        if reader.sees_everything:
            return None
        default_groups = self.settings.access.default_groups
        return find_visible_sources(self.graph.read_access(), reader, default_groups)

    def check_visible(self, reader: Reader, source_id: str) -> None:
        """Raise NotFoundError unless a reader may see the skills of a source, or could
        if the source existed."""
        if reader.sees_everything:
            return
        groups = self.graph.read_access().groups
        if not reader.shares(groups.get(source_id, self.settings.access.default_groups)):
            raise NotFoundError(f"no source {source_id!r}")

    def graph_for(self, reader: Reader) -> SkillGraph:
        """Return the catalog for reading, restricted to what a reader may see now."""
        return restrict_graph(self.graph, reader, self.settings.access.default_groups)

    def revisions_for(self, reader: Reader) -> RevisionReader:
        """Return a reader of the revisions that a reader may see now; it also compares them."""
        graph, index, history = self.graph, self.search_index(), self.history_store()
        visible = self.find_visible_sources(reader)
        if visible is not None:
            # The restricted stores have only the methods that read.
            graph = cast(SkillGraph, VisibleGraph(graph, visible))
            index = cast(SearchIndex, VisibleIndex(index, visible))
            history = cast(RevisionHistory, VisibleHistory(history, visible))
        return RevisionReader(self.settings, graph, index, history, self.review_store())

    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        """Set the groups of a source; see `Backend`."""
        self.graph.set_source_groups(check_new_source_id(source_id), parse_groups(groups))


def check_new_source_id(source_id: str) -> str:
    """Return `source_id`; raises UsageError if it is not a valid id for a source."""
    try:
        return _SOURCE_ID.validate_python(source_id)
    except ValidationError as error:
        raise UsageError(describe_validation_error(error)) from None
