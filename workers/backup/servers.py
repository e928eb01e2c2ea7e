"""Backup and restoration of a distributed library: Redis, history, Neo4j, search index.

Copied in this order, a backup is consistent while workers run. An event that is done in the copied
journal is in the copied catalog; an event that is open there is carried out again, which changes
nothing. The revisions that the catalog points to are write-once, and kept until they are copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from config.errors import UsageError
from config.settings import Settings
from graph.neo4j.catalog_backup import CatalogBackup, Row, check_schema
from search.elastic.index import ElasticsearchIndex
from search.local.revision_store import read_identity
from search.models.load_models import encoder_identity
from tasks.broker.redis_backup import RedisBackup, StoredKey
from tasks.coordination.redis import RedisCoordinator
from tasks.ingest.maintain import DELETION
from tasks.ingest.upgrade.reindex import IndexCopier, ReportProgress
from tasks.sources.uploads.store import copy_uploads, uploads_folder
from workers.backend.local_replacement import open_earlier_index
from workers.backend.stores import open_coordinator, open_history, open_review_store
from workers.backup.folder import (
    CATALOG,
    HISTORY,
    INDEX,
    KEYS,
    UPLOADS,
    Manifest,
    create_folder,
    read_lines,
    read_manifest,
    require_no_uploads,
    write_lines,
    write_manifest,
)
from workers.backup.history_copy import copy_history, restore_history
from workers.backup.index_copy import copy_revisions
from workers.processes.current_process import unique_process_name

_HOLD_SECONDS = 300.0
"""Time after each step of the copy in which no superseded revision is deleted."""


class ServerStores:
    """Clients of the servers of the settings, for a backup or restoration;
    closed with the stack."""

    def __init__(self, settings: Settings, stack: ExitStack, *, writable: bool) -> None:
        self.identity = encoder_identity(settings.encoder)
        self.redis = RedisBackup(settings.servers)
        stack.callback(self.redis.close)
        self.catalog = CatalogBackup(settings.servers)
        stack.callback(self.catalog.close)
        self.index = ElasticsearchIndex(
            settings.servers,
            self.identity.model,
            self.identity.dimension,
            writable=writable,
            caching=False,
        )
        stack.callback(self.index.close)
        self.history = open_history(settings, stack)
        self.reviews = open_review_store(settings, stack)
        self.coordinator: RedisCoordinator = open_coordinator(
            settings, stack, lambda _: 0, unique_process_name()
        )


def back_up_servers(settings: Settings, folder: Path, progress: ReportProgress) -> Manifest:
    """Copy a library from its servers into a new folder, while workers run.

    Raises UsageError if the folder is not empty, MisconfiguredError if there is no library.
    """
    with ExitStack() as stack:
        stores = ServerStores(settings, stack, writable=False)
        stores.index.ensure()  # raises for servers without a library before anything is written
        create_folder(folder)

        def hold_revisions() -> None:
            stores.coordinator.pause(DELETION, "a backup copies revisions", _HOLD_SECONDS)

        def report(done: int, total: int) -> None:
            hold_revisions()
            progress(done, total)

        write_lines(folder / KEYS, stores.redis.read())
        copy_history(stores.history, stores.reviews, folder / HISTORY)
        # From here on: a copy of a large history takes longer than revisions are held.
        hold_revisions()
        stack.callback(stores.coordinator.pause, DELETION, "", 1.0)
        stores.catalog.read(lambda rows: write_lines(folder / CATALOG, rows))
        pointers = _read_pointers(folder)
        missing = copy_revisions(stores.index, stores.identity, pointers, folder / INDEX, report)
        copy_uploads(uploads_folder(settings), folder / UPLOADS)
        return write_manifest(folder, "servers", stores.identity, len(pointers), missing)


def restore_servers(settings: Settings, folder: Path, progress: ReportProgress) -> Manifest:
    """Copy a backup to servers without a library; no process of skillbus may run.

    Raises UsageError for a backup that is damaged, incomplete, of a newer version or of another
    encoder, for servers that hold a library, and while workers run; nothing is written then.
    """
    manifest = read_manifest(folder, "servers")
    check_schema(_read_rows(folder))
    uploads = uploads_folder(settings)
    with ExitStack() as stack:
        stores = ServerStores(settings, stack, writable=True)
        _check_target(stores, manifest, uploads)
        _copy_index(stores, folder, stack, progress)
        if HISTORY in manifest.files:  # missing in backups of earlier versions
            restore_history(folder / HISTORY, stores.history, stores.reviews)
        stores.catalog.write(_read_rows(folder))
        stores.redis.write(StoredKey(*row) for row in read_lines(folder / KEYS))
        copy_uploads(folder / UPLOADS, uploads)
    return manifest


def _check_target(stores: ServerStores, manifest: Manifest, uploads: Path) -> None:
    if (stores.identity.model, stores.identity.dimension) != (manifest.model, manifest.dimension):
        raise UsageError(
            f"the backup has vectors of {manifest.model}, the settings name "
            f"{stores.identity.model}: set encoder.model to restore it, and change it afterwards "
            "with `skillbus reindex`"
        )
    running = [*stores.coordinator.alive_workers(), *stores.coordinator.list_consumers()]
    if running:
        raise UsageError(
            f"{len(running)} processes of skillbus are running on these servers: stop every "
            "worker, `consume`, the watcher and the gateway first"
        )
    require_no_uploads(uploads)
    stores.redis.require_empty()
    stores.catalog.require_empty()
    for what, found in (
        ("earlier revisions", next(stores.history.read_all(), None)),
        ("reviews", stores.reviews.get_all().by_skill),
        ("revisions", stores.index.list_keys()),  # last, since it creates a missing index
    ):
        if found:
            raise UsageError(
                f"Elasticsearch holds {what} of skills under this servers.elasticsearch_prefix: "
                "restore into an index without a library"
            )


def _copy_index(
    stores: ServerStores, folder: Path, stack: ExitStack, progress: ReportProgress
) -> None:
    identity = read_identity(folder / INDEX)
    if identity is None:
        raise UsageError(f"the backup in {folder} is incomplete: its index has no identity")
    source = open_earlier_index(folder / INDEX, identity)
    stack.callback(source.close)
    copier = IndexCopier(source, stores.index, stores.identity.model)
    copier.copy_revisions(source.list_keys(), progress)


def _read_rows(folder: Path) -> Iterable[Row]:
    return (Row(tuple(labels), values) for labels, values in read_lines(folder / CATALOG))


def _read_pointers(folder: Path) -> dict[str, int]:
    """Return the published seqs of the copied catalog, by skill id."""
    return {
        row.values["skill_id"]: row.values["seq"]
        for row in _read_rows(folder)
        if row.labels == ("Skill",) and row.values["seq"]
    }
