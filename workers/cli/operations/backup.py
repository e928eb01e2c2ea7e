"""`backup` and `restore`: copy a library into a folder, and back into an empty home or servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    print_result,
    print_to_stderr,
    progress_bar,
    read_settings,
)
from workers.cli.parameter_types import FolderPath

if TYPE_CHECKING:
    from workers.backup.folder import Manifest

_folder_argument = click.argument(
    "folder", metavar="DIR", type=FolderPath(path_type=Path, file_okay=False)
)


@click.command()
@_folder_argument
@json_option
def backup(folder: Path) -> None:
    """Copy the library into a new folder.

    The copy includes the journal, outcomes and uploaded skills. Workers and `serve` may keep
    running. Settings, tokens, credentials and the files of other sources are not copied.

    \b
    Examples:
      skillbus backup /srv/backups/skillbus-monday
    """
    # Slow to import.
    from workers.backup.folder import private_files

    settings = read_settings()
    with progress_bar("copying") as step, private_files():
        if settings.distributed:
            from workers.backup.servers import back_up_servers

            manifest = back_up_servers(settings, folder, step)
        else:
            from workers.backup.home import back_up_home

            manifest = back_up_home(settings, folder, step)
    _report(manifest, f"{format_count(manifest.skills, 'skill')} backed up in {folder}")


@click.command()
@_folder_argument
@json_option
@audited("library.restore", "folder")
def restore(folder: Path) -> None:
    """Restore a backup to an empty home or empty servers.

    Every file of the backup is checked before anything is written. Stop all skillbus processes of
    these servers first; afterwards, start them and sync the sources to add later changes.

    \b
    Examples:
      skillbus restore /srv/backups/skillbus-monday
    """
    from workers.backup.folder import private_files

    settings = read_settings()
    with progress_bar("restoring") as step, private_files():
        if settings.distributed:
            from workers.backup.servers import restore_servers

            manifest = restore_servers(settings, folder, step)
        else:
            from workers.backup.home import restore_home

            manifest = restore_home(settings, folder)
    restored = format_count(manifest.skills, "skill")
    _report(manifest, f"{restored} restored; the backup is of {manifest.created}")


def _report(manifest: Manifest, text: str) -> None:
    print_result(manifest.model_dump(exclude={"files"}) | {"files": len(manifest.files)}, text)
    if manifest.missing:
        count = format_count(manifest.missing, "skill")
        print_to_stderr(f"{count} changed during the copy, and are ingested again once restored")
