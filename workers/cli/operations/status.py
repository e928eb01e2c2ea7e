"""`status`: shows the contents of the library and the progress of its work."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from config.settings import Settings
from skills.bundle.escaping import show_invisible
from workers.backend.status import read_status
from workers.cli.common import format_count, json_option, print_result, read_settings
from workers.quantities import format_duration

OUTDATED = "skills of an older version of the parser; they are parsed again in the background"
_LABEL_WIDTH = len("dead letters")


@click.command()
@json_option
def status() -> None:
    """Show the state of the library and of pending work.

    "with vectors" counts the skills that are found by meaning as well as by words, "embedded" those
    whose sections have vectors too. A distributed deployment also has servers, workers with their
    running tasks, and queues.
    """
    settings = read_settings()
    print_result(read_status(settings), lambda report: _print(settings, report))


def _print(settings: Settings, report: Mapping[str, Any]) -> None:
    lines = _server_lines(report) if settings.distributed else [_home_line(report)]
    for line in (*_problem_lines(report), *lines, *_library_lines(report)):
        click.echo(line)


def _problem_lines(report: Mapping[str, Any]) -> list[str]:
    return [_line("problem", report["problem"])] if report["problem"] else []


def _line(label: str, text: str) -> str:
    # Ids of skills and reasons of failures hold text of skills and of servers.
    return f"{label:<{_LABEL_WIDTH}} {show_invisible(' '.join(text.splitlines()))}"


def _home_line(report: Mapping[str, Any]) -> str:
    serving = "serve is running" if report["serving"] else "no serve running"
    return _line("home", f"{report['home']} ({serving})")


def _server_lines(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for server in report["servers"]:
        state = f"up, {1000 * server['seconds']:.0f} ms" if server["up"] else server["problem"]
        lines.append(_line("server", f"{server['server']} {server['address']}: {state}"))
    for worker in report["workers"] or ():
        queues = ", ".join(queue.removeprefix("skillbus.") for queue in worker["queues"])
        lines.append(_line("worker", f"{worker['worker']}: {queues}"))
        for task in worker["running"]:
            name = task["task"].removeprefix("skillbus.")
            running = f"{name} for {format_duration(task['seconds'])}: {_first_ids(task['ids'])}"
            lines.append(_line("  running", running))
    if report["workers"] == []:
        lines.append(_line("workers", "none running; start `skillbus worker`"))
    if report["queues"] is not None:
        waiting = [
            f"{queue['queue'].removeprefix('skillbus.')} {queue['waiting']}"
            for queue in report["queues"]
        ]
        lines.append(_line("queues", f"{', '.join(waiting)} messages"))
    return lines


def _first_ids(ids: list[str]) -> str:
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(ids[:3]) + more if ids else "everything pending"


def _oldest(seconds: float | None) -> str:
    return f" (oldest {format_duration(seconds)})" if seconds else ""


def _library_lines(report: Mapping[str, Any]) -> list[str]:
    """Return lines about catalog and journal; none for a store that did not answer."""
    lines = []
    if (counts := report["skills"]) is not None:
        pending = f"{counts['waiting']} pending{_oldest(report.get('oldest_waiting_seconds'))}"
        skills = f"{counts['published']} published, {pending}, {counts['failed']} failed"
        unlinked = format_count(report["unlinked"], "skill")
        skills += f", {counts['held']} held for review" if counts.get("held") else ""
        lines += [
            _line("skills", skills),
            _line("with vectors", f"{report['with_vectors']} of {counts['published']}"),
            _line("embedded", f"{report['embedded']} of {counts['published']}"),
            _line("links", f"{report['links']} ({unlinked} to link)"),
        ]
        if report.get("outdated"):
            lines.append(_line("outdated", f"{report['outdated']} {OUTDATED}"))
    if (reviews := report.get("reviews")) and (reviews["withheld"] or reviews["updates"]):
        updates = format_count(reviews["updates"], "update")
        what = f"waiting: {reviews['withheld']} withheld, {updates}; see `skillbus review list`"
        lines.append(_line("reviews", what))
    if report["open_events"] is not None:
        oldest = max(report["oldest_event_seconds"], report["oldest_query_seconds"])
        events = format_count(report["open_events"], "event")
        queries = format_count(report["open_queries"], "query")
        lines += [
            _line("open", f"{events}, {queries}{_oldest(oldest)}"),
            _line("dead letters", str(report["dead_letters"])),
        ]
    if (model := report.get("language_model")) is not None:
        lines += _model_lines(model)
    lines += [_consumer_line(one) for one in report.get("submissions") or ()]
    return lines + [_source_line(one) for one in report["sources"] or ()]


def _model_lines(model: Mapping[str, Any]) -> list[str]:
    """Return lines with today's use of the language model, in total and by stage."""
    limit = model["daily_tokens"]
    budget = f" of {limit:,}, {model['tokens_left']:,} left" if limit else ", no limit"
    lines = [_line("model", f"{model['model']}: {model['tokens']:,} tokens today (UTC){budget}")]
    for stage, usage in model["usage"].items():
        tokens = usage["prompt_tokens"] + usage["completion_tokens"]
        calls = f"{tokens:,} tokens in {usage['calls']:,} calls"
        lines.append(_line(f"  {stage}", f"{calls}, {usage['stored']:,} stored answers"))
    return lines + _refinement_lines(model.get("refinement") or {})


def _refinement_lines(refinement: Mapping[str, Any]) -> list[str]:
    """Return lines with the number of refined skills by stage, and why refinement is paused."""
    lines = []
    for stage, counts in (refinement.get("stages") or {}).items():
        total = counts["refined"] + counts["waiting"]
        invalid = f", {counts['invalid']:,} invalid answers" if counts["invalid"] else ""
        lines.append(_line("refined", f"{stage}: {counts['refined']:,} of {total:,}{invalid}"))
    if pause := refinement.get("paused"):
        lines.append(_line("  paused", pause["reason"]))
    return lines


def _consumer_line(consumer: Mapping[str, Any]) -> str:
    """Return a line about a consumer of submissions: its counts and its state."""
    queued = "?" if consumer["waiting"] is None else consumer["waiting"]
    last = consumer["last_message"]
    age = format_duration(max(0.0, time.time() - (last or 0.0)))
    ago = f" (last message {age} ago)" if last else ""
    state = consumer["problem"] or ("connected" if consumer["connected"] else "not connected")
    return _line(
        "consumer",
        f"{consumer['consumer']} on {consumer['broker']}: "
        f"{consumer['recorded']} accepted, {consumer['refused']} refused{ago}, "
        f"{consumer['replied']} replies sent, {queued} queued; {state}",
    )


def _source_line(source: Mapping[str, Any]) -> str:
    """Return a line about a source; for a git source also its last sync, and its last error."""
    text = f"{source['source_id']}: {source['root']}"
    if source["kind"] == "git":
        lag = source["lag_seconds"]
        synced = "never synced" if lag is None else f"last synced {format_duration(lag)} ago"
        text += f" ({synced})"
        text += f": {source['last_error']}" if source["last_error"] else ""
    return _line("source", text)
