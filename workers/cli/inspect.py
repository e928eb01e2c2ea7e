"""`status`, `doctor` and `config`: how things stand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from config.errors import SkillbusError
from config.settings import Settings, config_path
from workers.cli import FAILED
from workers.cli.common import json_option, open_catalog, print_json, print_table, read_settings
from workers.client import ServeClient

_LOW_DISK_BYTES = 500_000_000


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show what the library holds and how far indexing and paging are."""
    settings = read_settings(ctx)
    report = read_status(settings)
    if as_json:
        print_json(report)
        return
    if report["trouble"]:
        click.echo(f"trouble   {report['trouble']}")
    counts = report["skills"]
    click.echo(f"home      {report['home']} ({'served' if report['serving'] else 'not served'})")
    click.echo(
        f"skills    {counts['published']} published, {counts['waiting']} waiting, "
        f"{counts['failed']} failed"
    )
    click.echo(f"paged     {report['paged']} ({report['paging_done']:.1%})")
    click.echo(f"links     {report['links']} ({report['unlinked']} skills waiting)")
    click.echo(f"open      {report['open_events']} events, {report['open_queries']} queries")
    for source in report["sources"]:
        click.echo(f"source    {source['source_id']}: {source['root']}")


def read_status(settings: Settings) -> dict[str, Any]:
    """The status of a home, from `serve` where it runs; raises UsageError without a library."""
    client = ServeClient.find(settings.home)
    if client is not None:
        try:
            report: dict[str, Any] = client.get("/v1/status")
            return report
        finally:
            client.close()
    from tasks.sqlite_journal import SqliteJournal
    from workers.status import status_of

    with open_catalog(settings) as graph:
        journal = SqliteJournal(settings.home / "journal.db")
        try:
            return status_of(settings, graph, journal, serving=False)
        finally:
            journal.close()


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check home, stores, model and sources, and say what to do about what is wrong."""
    settings = read_settings(ctx)
    results = [_checked(name, check) for name, check in _checks(settings)]
    if as_json:
        print_json(results)
    else:
        print_table(
            [(result["check"], result["state"], result["detail"]) for result in results],
            ("check", "state", "detail"),
        )
    if any(result["state"] == "wrong" for result in results):
        ctx.exit(FAILED)


def _checked(name: str, check: Callable[[], str]) -> dict[str, str]:
    try:
        return {"check": name, "state": "good", "detail": check()}
    except SkillbusError as error:
        return {"check": name, "state": "wrong", "detail": str(error)}


def _checks(settings: Settings) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "disk", lambda: _check_disk(settings)
    yield "encoder", lambda: _check_encoder(settings)
    if settings.reranker.model:
        yield "reranker", lambda: _check_reranker(settings)
    if not (settings.home / "graph.db").exists():
        yield "library", lambda: f"{settings.home}: nothing synced yet"
        return
    yield "catalog", lambda: _check_catalog(settings)
    yield "journal", lambda: _check_journal(settings)
    yield "index", lambda: _check_index(settings)
    yield "sources", lambda: _check_sources(settings)


def _check_disk(settings: Settings) -> str:
    folder = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < _LOW_DISK_BYTES:
        raise SkillbusError(f"{free / 1e6:.0f} MB free at {folder}; make room")
    return f"{free / 1e9:.1f} GB free at {folder}"


def _check_encoder(settings: Settings) -> str:
    from search.models import make_encoder

    encoder = make_encoder(settings.encoder)
    vector = encoder.encode(["a short text"])
    return f"{encoder.model}, {vector.shape[1]} dimensions, languages {sorted(encoder.languages)}"


def _check_reranker(settings: Settings) -> str:
    from search.models import load_reranker

    reranker = load_reranker(settings.reranker)
    reranker.score("a short task", ["a short text"])
    return f"{reranker.model}, languages {sorted(reranker.languages)}"


def _check_catalog(settings: Settings) -> str:
    with open_catalog(settings) as graph:
        counts = graph.counts()
    if counts["waiting"]:
        raise SkillbusError(
            f"{counts['waiting']} skills wait for ingest; `skillbus serve` or any sync goes on"
        )
    return f"{counts['published']} published, {counts['failed']} failed, {counts['paged']} paged"


def _check_journal(settings: Settings) -> str:
    from tasks.sqlite_journal import SqliteJournal

    journal = SqliteJournal(settings.home / "journal.db")
    try:
        waiting = len(journal.open_jobs("event")) + len(journal.open_jobs("query"))
    finally:
        journal.close()
    return f"{waiting} events and queries open"


def _check_index(settings: Settings) -> str:
    from search.local import LocalSearchIndex
    from search.models import encoder_identity
    from skills.record import RevisionKey

    identity = encoder_identity(settings.encoder.model)
    index = LocalSearchIndex(
        settings.home / "index", identity.model, identity.dimension, writable=False
    )
    try:
        stored = set(index.keys())
    finally:
        index.close()
    with open_catalog(settings) as graph:
        pointers = graph.changes(0).pointers
    published = {RevisionKey(skill_id, seq) for skill_id, seq in pointers.items() if seq}
    missing = published - stored
    if missing:
        raise SkillbusError(
            f"{len(missing)} published revisions are not in the index, such as "
            f"{min(missing)}; move {settings.home} away and sync again"
        )
    return f"{len(stored)} revisions, {len(stored - published)} of them superseded"


def _check_sources(settings: Settings) -> str:
    with open_catalog(settings) as graph:
        found = graph.sources()
    away = [source for source in found if not Path(source.root).is_dir()]
    if away:
        raise SkillbusError(
            "; ".join(
                f"{source.root} of {source.source_id} is not there: bring it back, or "
                f"`skillbus sources remove {source.source_id}`"
                for source in away
            )
        )
    return f"{len(found)} there"


@click.group()
def config() -> None:
    """Show settings."""


@config.command("show")
@json_option
@click.pass_context
def show_config(ctx: click.Context, as_json: bool) -> None:
    """Show every setting in force, and the file and variables that may set it."""
    settings = read_settings(ctx)
    values = settings.model_dump(mode="json")
    if as_json:
        print_json(values)
        return
    path = config_path(settings.home)
    click.echo(f"# {path}{'' if path.exists() else ' (not there)'}, then SKILLBUS_… variables")
    for name, value in values.items():
        if not isinstance(value, dict):
            click.echo(f"{name} = {value!r}")
    for name, value in values.items():
        if isinstance(value, dict):
            click.echo(f"\n[{name}]")
            for key, inner in value.items():
                click.echo(f"{key} = {inner!r}")
