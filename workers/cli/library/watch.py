"""`watch`: syncs a directory, then follows its changes."""

from __future__ import annotations

from pathlib import Path

import click

from workers.audit.commands import recorded
from workers.backend.factory import open_backend
from workers.cli.common import print_to_stderr, read_settings
from workers.cli.library.sync import (
    DIRECTORY,
    SEARCHABLE,
    make_source_event,
    print_report,
    run_sync,
)


@click.command()
@click.argument("directory", type=DIRECTORY)
@click.option("--source", "source_id", help="The source's id [default: the folder's name].")
def watch(directory: Path, source_id: str | None) -> None:
    """Sync a directory, then follow its changes until interrupted.

    If `skillbus serve` is running, it watches the directory instead, and the command returns.

    \b
    Example:
      skillbus watch ./skills
    """
    settings = read_settings()
    content = make_source_event(directory, source_id)
    with open_backend(settings, writable=True, refine="always") as backend:
        with recorded(settings, "sources.watch", f"{content.source_id} {content.root}"):
            report = run_sync(backend, content, SEARCHABLE)
        print_report(report)
        if backend.watches_sources:
            print_to_stderr(f"skillbus serve now watches {content.root}")
            return
        from workers.processes.watcher import Watcher  # slow to import

        with Watcher(backend) as watcher:
            print_to_stderr(f"watching {content.root}; press Ctrl-C to stop")
            watcher.wait()
