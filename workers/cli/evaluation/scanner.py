"""`eval scanner`: the safety scanner on labelled skills."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from workers.cli.common import json_option, print_line, print_result, print_table, read_settings
from workers.cli.parameter_types import OutputFile
from workers.library.user_files import write_text


@click.command("scanner")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    help="Level of a finding that counts. [default: the lowest that the policy withholds]",
)
@click.option(
    "--ablate", is_flag=True, help="Count for each rule the skills that no other rule finds."
)
@click.option("--out", type=OutputFile(), help="Write the report as JSON, with all skills.")
@json_option
def scanner(folder: Path, level: int | None, ablate: bool, out: Path | None) -> None:
    """Measure the safety scanner on labelled skills.

    FOLDER holds `malicious/` and `benign/`, each with folders of skills: `malicious/SKILL`, or
    `malicious/KIND/SKILL`. Their files are neither run nor stored.

    \b
    Example:
      skillbus eval scanner corpus --ablate
    """
    from tasks.ingest.preparation.campaign_indicators import load_indicators
    from workers.evaluation.scanner import scan_corpus, scanner_report

    settings = read_settings()
    load_indicators(settings.policy.indicators)
    lowest = min(settings.policy.highest_level + 1, 3) if level is None else level
    report = scanner_report(scan_corpus(folder, settings.limits), lowest, ablate=ablate)
    print_result(report, _print_report)
    if out is not None:
        write_text(out, json.dumps(report, ensure_ascii=False, indent=2) + "\n")


def _print_report(report: dict[str, Any]) -> None:
    click.echo(f"level {report['level']} and above:")
    click.echo(
        f"found {report['found']} of {report['malicious']} malicious: {report['recall']:.3f}"
    )
    click.echo(
        f"false {report['false']} of {report['benign']} benign:    {report['false_rate']:.3f}"
    )
    for path, reason in report["unreadable"].items():
        print_line(f"not counted: {path}: {reason}")
    for label, kinds in report["kinds"].items():
        rows = [(kind, one["flagged"], one["skills"]) for kind, one in kinds.items()]
        _print_table((f"{label}, by kind", "flagged", "of"), rows)
    columns = sorted({name for counts in report["rules"].values() for name in counts})
    order = [one for one in ("found", "found_only", "false", "false_only") if one in columns]
    flagging = {rule: one for rule, one in report["rules"].items() if any(one.values())}
    rows = [(rule, *(one[name] for name in order)) for rule, one in flagging.items()]
    rows.sort(key=lambda row: (-row[1], row[0]))
    _print_table(("rule", *(name.replace("_", " ") for name in order)), rows)


def _print_table(header: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        click.echo()
        print_table([[*map(str, row)] for row in rows], header)
