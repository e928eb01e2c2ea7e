"""Opens the backend that the settings call for. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from config.settings import Settings

if TYPE_CHECKING:
    from tasks.metrics_recorder import MetricsRecorder
    from workers.backend.protocol import Backend, EmbedMode, RefineMode
    from workers.backend.serve import ServeBackend
    from workers.backend.store_backend import StoreBackend
    from workers.library.review.review_list import ReviewLister
    from workers.library.revisions import RevisionReader
    from workers.library.skill_reader import SkillReader, Stores


def open_backend(
    settings: Settings,
    *,
    writable: bool,
    embeds: EmbedMode = "sections",
    refine: RefineMode = "never",
) -> Backend:
    """Open the backend of a deployment: a distributed one; else a running `serve`; else an embedded
    one in this process.

    writable, embeds, refine: see `open_store_backend`. Raises UsageError if there is no
    library to read, or if another process writes to it.
    """
    return find_serve(settings) or open_store_backend(
        settings, writable=writable, embeds=embeds, refine=refine
    )


def open_store_backend(
    settings: Settings,
    *,
    writable: bool,
    embeds: EmbedMode = "sections",
    refine: RefineMode = "always",
    metrics: MetricsRecorder | None = None,
) -> StoreBackend:
    """Open a backend with its own stores, whether or not `serve` runs.

    writable: whether events may be submitted. For an embedded deployment only: `embeds` says which
    vectors this process computes, the rest being left to a later process; `refine` which skills a
    language model refines in it; `metrics` records how tasks run.
    """
    if settings.distributed:
        from workers.backend.distributed import DistributedBackend

        return DistributedBackend(settings, writable=writable)
    from workers.backend.embedded import EmbeddedBackend

    return EmbeddedBackend(
        settings,
        writable=writable,
        embeds=embeds,
        refine=refine,
        metrics=metrics,
    )


def find_serve(settings: Settings) -> ServeBackend | None:
    """Return the backend of the `serve` that runs on the home of an embedded
    library, or None."""
    if settings.distributed:
        return None
    from workers.backend.serve_client import ServeClient

    client = ServeClient.connect(settings.home)
    if client is None:
        return None
    from workers.backend.serve import ServeBackend

    return ServeBackend(settings, client)


def open_skill_reader(settings: Settings) -> SkillReader:
    """Return a reader of skills that opens catalog and index on first use; the caller closes it."""
    from workers.library.skill_reader import SkillReader

    def open_stores(stack: ExitStack) -> Stores:
        from workers.backend.stores import open_graph, open_reader_stores

        return open_reader_stores(settings, open_graph(settings, stack, writable=False), stack)

    return SkillReader(settings, open_stores)


@contextmanager
def open_revision_reader(settings: Settings) -> Iterator[RevisionReader]:
    """Open a reader of the revisions of skills; raises UsageError if there is no library."""
    from workers.backend.stores import (
        open_graph,
        open_history,
        open_index,
        open_review_store,
    )
    from workers.library.revisions import RevisionReader

    with ExitStack() as stack:
        yield RevisionReader(
            settings,
            open_graph(settings, stack, writable=False),
            open_index(settings, stack, writable=False),
            open_history(settings, stack),
            open_review_store(settings, stack),
        )


@contextmanager
def open_review_lister(settings: Settings) -> Iterator[ReviewLister]:
    """Open a lister of reviews; raises UsageError if there is no library."""
    from workers.backend.stores import open_graph, open_index, open_review_store
    from workers.library.review.review_list import ReviewLister

    with ExitStack() as stack:
        yield ReviewLister(
            settings,
            open_graph(settings, stack, writable=False),
            open_index(settings, stack, writable=False).get_revisions,
            open_review_store(settings, stack),
        )
