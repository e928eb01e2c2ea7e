"""`findings`: lists what the scanner finds in the skills of the library."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version
from typing import Any

import click

from config.errors import UsageError
from workers.backend.factory import open_skill_reader
from workers.cli.common import json_option, print_json, print_table, read_settings


@click.command()
@click.argument("skill_id", required=False, default="")
@click.option("--rule", default="", help="Only findings of this rule, by its id.")
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    help="Only findings of this level or above.",
)
@click.option("--source", "source_id", help="Only skills of this source.")
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code scanning services.")
@json_option
@click.pass_context
def findings(
    ctx: click.Context,
    skill_id: str,
    rule: str,
    level: int,
    source_id: str | None,
    sarif: bool,
    as_json: bool,
) -> None:
    """List the findings in published skills: level, rule, file, line and reason.

    Withheld skills are listed too. With SKILL_ID only those of one skill.

    \b
    Examples:
      skillbus findings --level 2
      skillbus findings --source team --sarif > findings.sarif
    """
    from skills.skill_policy import check_rule_ids  # slow to import
    from workers.library.findings import FindingFilter, find_findings, to_sarif

    if sarif and as_json:
        raise UsageError("--sarif is JSON already: leave out --json")
    check_rule_ids([rule] if rule else [], "--rule")
    if skill_id:
        source_id = source_id or skill_id.partition(":")[0]
    with closing(open_skill_reader(read_settings(ctx))) as reader:
        if source_id is not None and source_id not in {
            one.source_id for one in reader.list_sources()
        }:
            raise UsageError(f"no source {source_id!r}; `skillbus sources list` names them")
        if skill_id:
            reader.require(skill_id)
        found = list(find_findings(reader, FindingFilter(rule, level, source_id, skill_id)))
    if sarif:
        print_json(to_sarif(found, version("skillbus")))
    elif as_json:
        print_json([one.describe() for one in found])
    elif not found:
        click.echo("no findings")
    else:
        print_table(
            [
                (
                    str(row["level"]),
                    row["rule"] or row["kind"],
                    row["skill_id"],
                    f"{row['file']}:{row['line']}",
                    row["reason"] + _describe_exemption(row),
                )
                for row in (one.describe() for one in found)
            ],
            ("level", "rule", "skill id", "line", "reason"),
        )


def _describe_exemption(row: dict[str, Any]) -> str:
    if (waived := row["waived"]) is not None:
        return f" (waived by {waived['by']}: {waived['reason']})"
    return " (suppressed)" if row["suppressed"] else ""
