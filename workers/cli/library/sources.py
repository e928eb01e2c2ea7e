"""`sources`: adds, lists, refreshes and removes sources."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import click
from pydantic import ValidationError

from config.errors import UsageError
from graph.records import SkillState, Source
from skills.access import parse_groups
from skills.events import GitFetchOptions, SourceChanged, SourceRemoved, describe_validation_error
from tasks.sources.directory import identify_folder
from workers.backend.factory import open_backend
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    group_option,
    json_option,
    open_catalog,
    print_line,
    print_list,
    print_result,
    print_to_stderr,
    read_settings,
    require_source,
)
from workers.cli.library.sync import EMBEDDED, sync_source
from workers.cli.parameter_types import NumberRange
from workers.cli.waiting import submit_and_wait
from workers.library.access.reader_views import check_new_source_id
from workers.monitoring.status import source_status
from workers.quantities import format_duration


@click.group()
def sources() -> None:
    """Add git repositories; list, refresh and remove sources."""


@sources.command("add")
@click.argument("url")
@click.option("--branch", default="", help="Branch to fetch [default: the remote's default].")
@click.option("--path", default="", help="Folder of the repository that holds the skills.")
@click.option("--source", "source_id", help="The source's id [default: the repository's name].")
@click.option(
    "--credential-file",
    type=click.Path(path_type=Path),
    help="File in the folder `git.credentials` with a token or user:password on one line.",
)
@click.option(
    "--poll-seconds",
    type=NumberRange(min=0),
    default=0.0,
    help="Seconds between fetches [default: git.poll_seconds].",
)
@click.option(
    "--licence-policy",
    "licences",
    multiple=True,
    metavar="LICENCE",
    help="An allowed licence; repeatable [default: any that the settings allow].",
)
@group_option
@json_option
@audited("sources.add", "url", "source_id", "groups")
def add_source(
    url: str,
    branch: str,
    path: str,
    source_id: str | None,
    credential_file: Path | None,
    poll_seconds: float,
    licences: tuple[str, ...],
    groups: tuple[str, ...],
) -> None:
    """Add a git repository as a source.

    It is fetched now, and every --poll-seconds. Run it again to change the options of a source.
    Skills keep their ids, which are relative to --path.

    \b
    Examples:
      skillbus sources add https://example.org/team/skills.git
      skillbus sources add https://example.org/mono.git --path tools/skills --source team
    """
    from tasks.sources.git.address import check_url
    from tasks.sources.git.mirror import check_git_source, credentials_folder

    settings = read_settings()
    check_url(url, settings.git)
    if not all(one.strip() for one in licences):
        raise UsageError("--licence-policy is empty; name a licence, or leave the option out")
    name = source_id
    if name is None:
        name = PurePosixPath(urlsplit(url).path).name.removesuffix(".git")
    file = credential_file or Path()
    if file.is_file():
        file = Path(os.path.abspath(file))  # noqa: PTH100 - the link may be changed, its name not
    # A relative path: other machines may have the folder elsewhere.
    folder = credentials_folder(settings)
    file = file.relative_to(folder) if file.is_relative_to(folder) else file
    try:
        git = GitFetchOptions(
            branch=branch,
            path=path.strip("/"),
            licences=licences,
            credential_file=str(file) if credential_file else "",
            poll_seconds=poll_seconds,
        )
        content = SourceChanged(source_id=name, root=url, git=git)
    except ValidationError as error:
        problem = describe_validation_error(error)
        hint = "; give --source ID" if problem.startswith("source_id") else ""
        raise UsageError(problem + hint) from None
    check_git_source(Source(name, "git", url, **dict(git)), settings)
    sync_source(settings, content, EMBEDDED, groups)


@sources.command("groups")
@click.argument("source_id")
@click.argument("groups", nargs=-1)
@click.option("--default", "reset", is_flag=True, help="Remove the groups of the source.")
@json_option
@audited("sources.groups", "source_id", "groups", "reset")
def set_source_groups(source_id: str, groups: tuple[str, ...], reset: bool) -> None:
    """Set or show the groups that see the skills of a source.

    Without GROUPS, they are shown. The source may be added later. `everyone` is the group of all
    readers. A source without groups has those of the settings (access.default_groups).

    \b
    Examples:
      skillbus sources groups ledgers finance audit
      skillbus sources groups ledgers
      skillbus sources groups ledgers --default
    """
    settings = read_settings()
    if groups and reset:
        raise UsageError("give either groups or --default")
    if groups or reset:
        with open_backend(settings, writable=True, embeds="nothing") as backend:
            backend.set_source_groups(check_new_source_id(source_id), parse_groups(groups))
    with open_catalog(settings) as graph:
        access = graph.read_access()
    own = access.groups.get(source_id, ())
    if not reset:
        _warn_if_missing(source_id, [one.source_id for one in access.sources])
    shown = list(own or settings.access.default_groups)
    origin = "" if own else " (access.default_groups)"
    print_result(
        {"source_id": source_id, "groups": shown, "default": not own},
        f"{source_id}: {' '.join(shown) or 'admins only'}{origin}",
    )


def _warn_if_missing(source_id: str, known: Sequence[str]) -> None:
    """Warn that a source does not exist: its id may be misspelt."""
    if source_id in known:
        return
    similar = difflib.get_close_matches(source_id, known, n=1)
    hint = f"; did you mean {similar[0]!a}?" if similar else ""
    print_to_stderr(
        f"there is no source {source_id!a} yet; groups apply from the moment it is added{hint}"
    )


@sources.command("refresh")
@click.argument("source_id")
@json_option
@audited("sources.refresh", "source_id")
def refresh_source(source_id: str) -> None:
    """Fetch a git source, or read a directory, now.

    \b
    Example:
      skillbus sources refresh team
    """
    settings = read_settings()
    with open_catalog(settings) as graph:
        known = graph.list_sources()
    require_source(known, source_id)
    root = next(source.root for source in known if source.source_id == source_id)
    content = SourceChanged(source_id=source_id, root=root)
    sync_source(settings, content, EMBEDDED)


@sources.command("list")
@json_option
def list_sources() -> None:
    """List sources: published skills, groups, last sync."""
    settings = read_settings()
    rows = []
    with open_catalog(settings) as graph:
        found, groups = graph.read_access()
        counted = graph.count_states_by_source([source.source_id for source in found])
        for source in found:
            count = counted[source.source_id].get(SkillState.PUBLISHED, 0)
            rows.append(
                source_status(source)
                | {"published": count, "reachable": (reachable := _is_reachable(source))}
                | {"groups": list(groups.get(source.source_id, ()))}
                | {"there": reachable}  # the name before 0.2; remove it after that version
            )
    columns = (
        "source",
        "kind",
        "published",
        "reachable",
        "branch",
        "groups",
        "last synced",
        "root",
    )
    print_list(rows, columns, "no sources", _to_cells)


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["source_id"],
        row["kind"],
        row["published"],
        "yes" if row["reachable"] else "no",
        row.get("branch") or "-",
        " ".join(row["groups"]) or "-",
        f"{format_duration(row['lag_seconds'])} ago" if row["last_success"] else "never",
        row["root"] + (f" ({row['last_error']})" if row.get("last_error") else ""),
    )


def _is_reachable(source: Source) -> bool:
    """Return whether the last fetch of a repository succeeded, or a directory exists now."""
    if source.kind == "git":
        return not source.last_error
    return source.kind != "directory" or identify_folder(Path(source.root)) is not None


@sources.command("remove")
@click.argument("source_id")
@audited("sources.remove", "source_id")
def remove_source(source_id: str) -> None:
    """Remove a source and all its skills from the library; files stay."""
    settings = read_settings()
    with open_catalog(settings) as graph:
        require_source(graph.list_sources(), source_id)
    outcome = submit_and_wait(settings, SourceRemoved(source_id=source_id))
    print_line(f"{source_id}: {format_count(outcome['removed'], 'skill')} removed")
