"""`reindex`: moves a library to an index of another model or schema."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from config.errors import NothingToDoError
from config.settings import Settings
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    print_result,
    print_to_stderr,
    progress_bar,
    read_settings,
    wants_json,
)

if TYPE_CHECKING:
    from search.elastic.replacement import ElasticsearchReplacement
    from search.models.identity import EncoderIdentity
    from workers.backend.local_replacement import LocalReplacement


@click.command("reindex")
@click.option(
    "--drop-old", is_flag=True, help="Delete the indices that an earlier reindex replaced."
)
@json_option
@audited("library.reindex", "drop_old")
def reindex(drop_old: bool) -> None:
    """Rebuild the index; parse outdated skills again.

    The new index is for the current model and schema. When it is complete, the library switches to
    it; the old index answers until then, and is kept until --drop-old. Run the command with the new
    settings while the workers, or `skillbus serve`, run with the old ones; restart them when it is
    done. An interrupted run is resumed by the next one.

    `serve` writes to the index of a home: the command copies the index while `serve` runs, and
    then asks you to stop `serve` and to run the command again for the switch.

    Outdated skills are parsed again in the background anyway. The command does it at once; with
    servers, only if the index is current, since old workers would not find the new revisions: run
    it again when the workers are restarted.
    """
    settings = read_settings()
    if drop_old:
        dropped = _drop(settings)
        text = f"dropped {', '.join(dropped)}" if dropped else "no old index to drop"
        print_result({"dropped": dropped}, text)
        return
    report = _reindex_and_parse(settings)
    copied = format_count(report["copied"], "revision")
    copied += f" copied; the index in use is now {report['new']}"
    parsed = f"{format_count(report['reparsed'], 'skill')} parsed again"
    print_result(report, f"{copied}; {parsed}" if report["new"] else parsed)
    if not wants_json() and report["new"]:
        restart = "Restart the workers; then" if settings.distributed else "Now"
        print_to_stderr(
            f"{restart} `skillbus reindex --drop-old` deletes {report['old']}, "
            "which is read-only from now on."
        )


def _reindex_and_parse(settings: Settings) -> dict[str, Any]:
    from workers.backend.outdated_skills import count_outdated, reparse_library

    report = {"copied": 0, "old": "", "new": "", "reparsed": 0}
    try:
        report |= _reindex(settings)
    except NothingToDoError:
        if not count_outdated(settings):
            raise
    may_parse = not settings.distributed or not report["new"]
    if may_parse and count_outdated(settings):
        with progress_bar("parsing") as step:
            report["reparsed"] = reparse_library(settings, step)
    return report


def _drop(settings: Settings) -> list[str]:
    if not settings.distributed:
        from workers.backend.local_replacement import drop_superseded_index

        return drop_superseded_index(settings.home)
    from search.elastic.replacement import delete_superseded

    return delete_superseded(settings.servers)


def _reindex(settings: Settings) -> dict[str, Any]:
    from search.models.load_models import encoder_identity, load_encoder
    from tasks.ingest.upgrade import reindex as task
    from workers.backend.stores import open_graph

    identity = encoder_identity(settings.encoder)
    with contextlib.ExitStack() as stack:
        # The workers of this version, which would migrate the catalog, start only afterwards.
        graph = open_graph(settings, stack, writable=settings.distributed)
        replacement = _open_replacement(settings, identity)
        stack.callback(replacement.close)
        encoder = None if replacement.same_model else load_encoder(settings.encoder)
        copier = task.IndexCopier(replacement.source, replacement.target, identity.model, encoder)
        with progress_bar("copying") as step:
            copied = task.reindex(
                replacement, copier, lambda: graph.get_changes_since(0).pointers, step
            )
        old, new = replacement.names
        return {"copied": copied, "old": old, "new": new}


def _open_replacement(
    settings: Settings, identity: EncoderIdentity
) -> ElasticsearchReplacement | LocalReplacement:
    if not settings.distributed:
        from workers.backend.local_replacement import LocalReplacement

        return LocalReplacement(settings.home, identity.model, identity.dimension)
    from search.elastic.replacement import ElasticsearchReplacement

    return ElasticsearchReplacement(settings.servers, identity.model, identity.dimension)
