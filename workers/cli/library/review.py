"""`review`: decisions about withheld skills and updates that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError
from workers.audit.log import get_local_principal
from workers.backend.factory import open_backend, open_review_lister, open_revision_reader
from workers.cli.audited import audited
from workers.cli.common import (
    ask,
    json_option,
    open_catalog,
    print_line,
    print_list,
    print_result,
    read_settings,
    require_source,
    wants_json,
)
from workers.cli.library.revisions import print_diff
from workers.cli.waiting import wait_until_ingested

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
def list_reviews(state: str | None, source_id: str | None) -> None:
    """List withheld skills and updates that wait, with decisions.

    \b
    Example:
      skillbus review list --state waiting
    """
    from workers.library.review.review_list import ReviewFilter, ReviewState  # slow to import

    settings = read_settings()
    with open_review_lister(settings) as lister:
        wanted = ReviewFilter(ReviewState(state) if state else None, source_id)
        rows = [one.describe() for one in lister.list_items(wanted)]
    if not rows:
        with open_catalog(settings) as graph:
            require_source(graph.list_sources(), source_id)
    columns = ("state", "about", "revision", "level", "why")
    print_list(rows, columns, "nothing to review", _to_cells)


def _to_cells(row: dict[str, Any]) -> tuple[object, ...]:
    revision = f"{row['skill_id']}@{row['seq']}"
    return row["state"], row["about"], revision, row["level"] or "-", _describe(row)


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
def show_review(revision: str) -> None:
    """Show findings, and the difference of an update.

    \b
    Example:
      skillbus review show team:deploy@13
    """
    print_result(_read(read_settings(), revision), _print_review)


def _print_review(data: dict[str, Any]) -> None:
    name = f"{data['skill_id']}@{data['seq']}"
    print_line(f"{name}: {data['state']}")
    for one in data["safety"]:
        mark = " (waived)" if one["waived"] else " (suppressed)" if one["suppressed"] else ""
        rule = one["rule"] or one["kind"]
        line = f"level {one['level']}, {rule}, {one['file']} line {one['line']}: {one['reason']}"
        print_line(f"finding{mark}: {line}")
    if data["withheld"]:
        print_line(f"withheld: {data['withheld']}")
    if data["change"] is not None:
        print_diff(data["change"])
        return
    if data["state"] != "published":
        click.echo("no revision is published that it could be compared with")
    print_line(f"`skillbus skills show {name}` shows the whole text")


def _read(settings: Settings, name: str) -> dict[str, Any]:
    from workers.library.revisions import describe_review  # slow to import

    with open_revision_reader(settings) as reader:
        return describe_review(reader, *reader.parse_name(name))


@review.command("release")
@_revision
@_reason
@json_option
@audited("review.release", "revision")
def release(revision: str, reason: str) -> None:
    """Waive all findings of a withheld skill, so that it is sent.

    \b
    Example:
      skillbus review release team:deploy --reason "read by the platform team"
    """
    _decide("release", revision, reason)


@review.command("confirm")
@_revision
@_reason
@json_option
@audited("review.confirm", "revision")
def confirm(revision: str, reason: str) -> None:
    """Withhold this content of a skill.

    It stays withheld, regardless of its findings and of the settings.

    \b
    Example:
      skillbus review confirm hub:free-tokens --reason "sends the environment away"
    """
    _decide("confirm", revision, reason)


@review.command("approve")
@_revision
@click.option(
    "--reason", default="reviewed", show_default=True, help="Reason; kept with the approval."
)
@click.option("--yes", is_flag=True, help="Approve without showing the difference and asking.")
@json_option
@audited("review.approve", "revision")
def approve(revision: str, reason: str, yes: bool) -> None:
    """Publish an update of a source in `policy.review`.

    Without SEQ, the newest update is shown and you are asked to confirm.

    \b
    Example:
      skillbus review approve untrusted:deploy@13
    """
    settings = read_settings()
    data = _read(settings, revision)
    name = f"{data['skill_id']}@{data['seq']}"
    if revision != name and not yes:
        _ask_about(name, data)
    _decide("approve", name, reason, wait_for=data["skill_id"])


def _ask_about(name: str, data: dict[str, Any]) -> None:
    if data["state"] != "held":
        raise UsageError(f"no update of {data['skill_id']} waits; {name} is {data['state']}")
    if data["change"] is not None:
        print_diff(data["change"])
    if not ask(f"Publish {name}?"):
        raise UsageError(f"nothing was approved; `review approve {name}` skips the question")


@review.command("reject")
@click.argument("revision", metavar="SKILL_ID@SEQ")
@_reason
@json_option
@audited("review.reject", "revision")
def reject(revision: str, reason: str) -> None:
    """Refuse an update of a source in `policy.review`.

    It is not published.

    \b
    Example:
      skillbus review reject untrusted:deploy@13 --reason "the new script reads ~/.aws"
    """
    _decide("reject", revision, reason)


@review.command("reopen")
@click.argument("skill_id")
@audited("review.reopen", "skill_id")
def reopen(skill_id: str) -> None:
    """Revoke the decision about the current content of a skill.

    The skill waits for a review again.

    \b
    Example:
      skillbus review reopen team:deploy
    """
    with open_backend(read_settings(), writable=True, embeds="nothing") as backend:
        backend.reopen_review(skill_id)
    print_line(f"reopened: {skill_id}")


def _decide(decision: str, name: str, reason: str, wait_for: str = "") -> None:
    """Carry out a decision. wait_for: the skill whose ingest the decision requests."""
    from workers.library.review.decisions import ReviewDecision  # slow to import

    settings = read_settings()
    with open_revision_reader(settings) as reader:
        skill_id, seq = reader.parse_name(name)
    with open_backend(settings, writable=True, embeds="nothing") as backend:
        principal = get_local_principal()
        data = backend.review_skill(ReviewDecision(decision), skill_id, seq, principal, reason)
        if wait_for:
            wait_until_ingested(backend, [wait_for])
    print_result(data, f"{_DONE[decision]}: {data['skill_id']}@{data['seq']}")
    if data["withheld"] and not wants_json():
        print_line(f"withheld: {data['withheld']}")


_DONE = {
    "release": "released",
    "confirm": "confirmed",
    "approve": "approved",
    "reject": "rejected",
}
