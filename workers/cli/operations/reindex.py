"""`reindex`: move a distributed library to an index of another model or schema."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from config.errors import UsageError
from config.settings import Settings
from workers.cli.common import json_option, print_json, print_to_stderr, progress_bar, read_settings


@click.command("reindex")
@click.option(
    "--drop-old", is_flag=True, help="Delete the indices that an earlier reindex replaced."
)
@json_option
@click.pass_context
def reindex(ctx: click.Context, drop_old: bool, as_json: bool) -> None:
    """Build the search index of the model and version now in use, then switch to it.

    The old index answers until the switch, and is kept until --drop-old. Run it with the new
    settings while the workers run with the old ones; restart the workers when it is done. An
    interrupted run is resumed by the next one.
    """
    settings = read_settings(ctx)
    if not settings.distributed:
        raise UsageError(
            "reindex needs Elasticsearch; to rebuild an embedded library, set SKILLBUS_HOME to an "
            "empty folder and sync its sources"
        )
    report = _drop(settings) if drop_old else _reindex(settings)
    if as_json:
        print_json(report)
    elif drop_old:
        dropped = ", ".join(report["dropped"])
        click.echo(f"dropped {dropped}" if dropped else "no old index to drop")
    else:
        click.echo(f"{report['copied']} revisions copied; the index in use is now {report['new']}")
        print_to_stderr(
            f"Restart the workers; then `skillbus reindex --drop-old` deletes {report['old']}, "
            "which is read-only from now on."
        )


def _drop(settings: Settings) -> dict[str, Any]:
    from search.elastic.replacement import delete_superseded

    return {"dropped": delete_superseded(settings.servers)}


def _reindex(settings: Settings) -> dict[str, Any]:
    from search.elastic.replacement import ElasticsearchReplacement
    from search.models.encoder import encoder_identity
    from search.models.load_models import load_encoder
    from tasks.ingest import reindex as task
    from workers.backend.stores import open_graph

    identity = encoder_identity(settings.encoder.model)
    with contextlib.ExitStack() as stack:
        graph = open_graph(settings, stack, writable=False)
        replacement = ElasticsearchReplacement(settings.servers, identity.model, identity.dimension)
        stack.callback(replacement.close)
        encoder = None if replacement.same_model else load_encoder(settings.encoder)
        copier = task.IndexCopier(replacement.source, replacement.target, identity.model, encoder)
        with progress_bar("copying") as step:
            copied = task.reindex(
                replacement, copier, lambda: graph.get_changes_since(0).pointers, step
            )
        old, new = replacement.names
        return {"copied": copied, "old": old, "new": new}
