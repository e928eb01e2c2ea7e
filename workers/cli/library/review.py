"""`review`: decisions about withheld skills and updates that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError
from skills.bundle.escaping import escape_terminal_line
from workers.audit.log import get_local_principal
from workers.backend.factory import open_backend, open_review_lister, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    ask,
    json_option,
    open_catalog,
    print_json,
    print_table,
    read_settings,
    require_source,
)
from workers.cli.library.pins import wait_until_ingested
from workers.cli.library.revisions import print_diff

if TYPE_CHECKING:
    from config.settings import Settings

_STATES = ("waiting", "released", "confirmed", "rejected")

_revision = click.argument("revision", metavar="SKILL_ID[@SEQ]")
_reason = click.option("--reason", required=True, help="Reason; shown in `review list`.")


@click.group()
def review() -> None:
    """Review withheld skills, and updates before publication.

    Every decision is about one content of a skill, and ends when any of its files changes.
    """


@review.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only this state.")
@click.option("--source", "source_id", help="Only skills of this source.")
@json_option
@click.pass_context
def list_reviews(
    ctx: click.Context, state: str | None, source_id: str | None, as_json: bool
) -> None:
    """List withheld skills and updates that wait, with decisions.

    \b
    Example:
      skillbus review list --state waiting
    """
    settings = read_settings(ctx)
    with open_review_lister(settings) as lister:
        rows = [
            one.describe()
            for one in lister.list_items(source_id)
            if state in (None, one.state.value)
        ]
    if not rows:
        with open_catalog(settings) as graph:
            require_source(graph.list_sources(), source_id)
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("nothing to review")
    else:
        print_table(
            [
                (
                    row["state"],
                    row["about"],
                    f"{row['skill_id']}@{row['seq']}",
                    str(row["level"] or "-"),
                    _describe(row),
                )
                for row in rows
            ],
            ("state", "about", "revision", "level", "why"),
        )


def _describe(row: dict[str, Any]) -> str:
    if (decision := row["decision"]) is not None:
        return f"{decision['by']}, {decision['at']}: {decision['reason']}"
    if row["about"] == "findings":
        return ", ".join(row["rules"])
    published = row["published_seq"]
    return f"in place of revision {published}" if published else "not published yet"


@review.command("show")
@_revision
@json_option
@click.pass_context
def show_review(ctx: click.Context, revision: str, as_json: bool) -> None:
    """Show findings, and the difference of an update.

    \b
    Example:
      skillbus review show team:deploy@13
    """
    data = _read(read_settings(ctx), revision)
    if as_json:
        print_json(data)
        return
    click.echo(escape_terminal_line(f"{data['skill_id']}@{data['seq']}: {data['state']}"))
    for one in data["safety"]:
        mark = " (waived)" if one["waived"] else " (suppressed)" if one["suppressed"] else ""
        rule = one["rule"] or one["kind"]
        line = f"level {one['level']}, {rule}, {one['file']} line {one['line']}: {one['reason']}"
        click.echo(escape_terminal_line(f"finding{mark}: {line}"))
    if data["withheld"]:
        click.echo(escape_terminal_line(f"withheld: {data['withheld']}"))
    if data["change"] is not None:
        print_diff(data["change"])
        return
    if data["state"] != "published":
        click.echo("no revision is published that it could be compared with")
    name = f"{data['skill_id']}@{data['seq']}"
    click.echo(escape_terminal_line(f"`skillbus skills show {name}` shows the whole text"))


def _read(settings: Settings, name: str) -> dict[str, Any]:
    from workers.library.revisions import describe_review  # slow to import

    with open_revision_reader(settings) as reader:
        return describe_review(reader, *reader.parse_name(name))


@review.command("release")
@_revision
@_reason
@json_option
@click.pass_context
@audited("review.release", "revision")
def release(ctx: click.Context, revision: str, reason: str, as_json: bool) -> None:
    """Waive all findings of a withheld skill, so that it is sent.

    \b
    Example:
      skillbus review release team:deploy --reason "read by the platform team"
    """
    _decide(ctx, "release", revision, reason, as_json)


@review.command("confirm")
@_revision
@_reason
@json_option
@click.pass_context
@audited("review.confirm", "revision")
def confirm(ctx: click.Context, revision: str, reason: str, as_json: bool) -> None:
    """Withhold this content of a skill.

    It stays withheld, regardless of its findings and of the settings.

    \b
    Example:
      skillbus review confirm hub:free-tokens --reason "sends the environment away"
    """
    _decide(ctx, "confirm", revision, reason, as_json)


@review.command("approve")
@_revision
@click.option(
    "--reason", default="reviewed", show_default=True, help="Reason; kept with the approval."
)
@click.option("--yes", is_flag=True, help="Approve without showing the difference and asking.")
@json_option
@click.pass_context
@audited("review.approve", "revision")
def approve(ctx: click.Context, revision: str, reason: str, yes: bool, as_json: bool) -> None:
    """Publish an update of a source in `policy.review`.

    Without SEQ, the newest update is shown and you are asked to confirm.

    \b
    Example:
      skillbus review approve untrusted:deploy@13
    """
    settings = read_settings(ctx)
    data = _read(settings, revision)
    name = f"{data['skill_id']}@{data['seq']}"
    if revision != name and not yes:
        _ask_about(name, data)
    _decide(ctx, "approve", name, reason, as_json, wait_for=data["skill_id"])


def _ask_about(name: str, data: dict[str, Any]) -> None:
    if data["state"] != "held":
        raise UsageError(f"no update of {data['skill_id']} waits; {name} is {data['state']}")
    if data["change"] is not None:
        print_diff(data["change"])
    if not ask(f"Publish {escape_terminal_line(name)}?"):
        raise UsageError(f"nothing was approved; `skillbus review approve {name}` does not ask")


@review.command("reject")
@click.argument("revision", metavar="SKILL_ID@SEQ")
@_reason
@json_option
@click.pass_context
@audited("review.reject", "revision")
def reject(ctx: click.Context, revision: str, reason: str, as_json: bool) -> None:
    """Refuse an update of a source in `policy.review`.

    It is not published.

    \b
    Example:
      skillbus review reject untrusted:deploy@13 --reason "the new script reads ~/.aws"
    """
    _decide(ctx, "reject", revision, reason, as_json)


@review.command("reopen")
@click.argument("skill_id")
@click.pass_context
@audited("review.reopen", "skill_id")
def reopen(ctx: click.Context, skill_id: str) -> None:
    """Revoke the decision about the current content of a skill.

    The skill waits for a review again.

    \b
    Example:
      skillbus review reopen team:deploy
    """
    with open_backend(read_settings(ctx), writable=True, embeds="nothing") as backend:
        backend.reopen_review(skill_id)
    click.echo(f"reopened: {escape_terminal_line(skill_id)}")


def _decide(
    ctx: click.Context, decision: str, name: str, reason: str, as_json: bool, wait_for: str = ""
) -> None:
    """Carry out a decision. wait_for: the skill whose ingest the decision requests."""
    from workers.library.review.decisions import ReviewDecision  # slow to import

    settings = read_settings(ctx)
    with open_revision_reader(settings) as reader:
        skill_id, seq = reader.parse_name(name)
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        principal = get_local_principal()
        data = backend.review_skill(ReviewDecision(decision), skill_id, seq, principal, reason)
        if wait_for:
            wait_until_ingested(backend, [wait_for])
    if as_json:
        print_json(data)
        return
    click.echo(escape_terminal_line(f"{_DONE[decision]}: {data['skill_id']}@{data['seq']}"))
    if data["withheld"]:
        click.echo(escape_terminal_line(f"withheld: {data['withheld']}"))


_DONE = {
    "release": "released",
    "confirm": "confirmed",
    "approve": "approved",
    "reject": "rejected",
}
