"""`audit`: lists who changed what."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime

import click

from workers.audit.log import AuditLog, AuditRecord
from workers.cli.common import format_count, json_option, print_list, print_to_stderr, read_settings
from workers.cli.operations.tokens import parse_duration

_MAX_RECORDS = 1_000_000


@click.command()
@click.option(
    "--principal", help="Only changes by this principal: a token's name, `oidc:…` or `local:USER`."
)
@click.option("--action", help="Only this action, such as sources.add, or group, such as sources.")
@click.option("--object", "name", metavar="TEXT", help="Only records whose object contains TEXT.")
@click.option(
    "--outcome",
    type=click.Choice(["done", "refused", "failed"]),
    help="Only records of this outcome.",
)
@click.option(
    "--since", metavar="DURATION", help="Only records of the last DURATION, such as 30m, 12h or 7d."
)
@click.option(
    "--limit",
    type=click.IntRange(1, _MAX_RECORDS),
    default=100,
    show_default=True,
    help="Maximum number of records; the newest are shown.",
)
@json_option
def audit(
    principal: str | None,
    action: str | None,
    name: str | None,
    outcome: str | None,
    since: str | None,
    limit: int,
) -> None:
    """List changes in this home with their authors, oldest first.

    Commands, requests and webhooks that change something are recorded.

    \b
    Examples:
      skillbus audit --since 7d --action sources
      skillbus audit --principal ci --outcome refused --json
    """
    earliest = ""
    if since is not None:
        begin = max(0.0, time.time() - parse_duration(since, "--since"))
        earliest = datetime.fromtimestamp(begin, UTC).isoformat()
    found: deque[AuditRecord] = deque(maxlen=limit)
    count = 0
    for record in AuditLog(read_settings()).read():
        if (
            principal in (None, record.principal)
            and (action is None or f"{record.action}.".startswith(f"{action}."))
            and (name is None or name in record.object)
            and outcome in (None, record.outcome)
            and record.time >= earliest
        ):
            found.append(record)
            count += 1
    columns = ("time", "principal", "action", "outcome", "request_id", "object")
    print_list([asdict(record) for record in found], columns, "no records")
    if count > limit:
        print_to_stderr(
            f"{format_count(count - limit, 'earlier record')}; --limit shows more of them"
        )
