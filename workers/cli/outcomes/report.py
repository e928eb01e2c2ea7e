"""`outcome`: reports the outcome of a skill for a query."""

from __future__ import annotations

import click
from pydantic import ValidationError

from config.errors import UsageError
from skills.bundle.rejection import RejectionReason
from skills.events import OutcomesReported, SkillOutcome, describe_validation_error
from skills.outcomes.model import OutcomeKind, Reporter, TaskResult
from workers.backend.factory import open_backend
from workers.cli.audited import audited
from workers.cli.common import ORIGIN, json_option, print_result, read_settings
from workers.cli.waiting import wait_for_event


@click.command()
@click.argument("query_id", metavar="QUERY")
@click.argument("words", metavar="[SKILL] OUTCOME", nargs=-1, required=True)
@click.option(
    "--reason",
    type=click.Choice([one.value for one in RejectionReason]),
    help="Reason of the outcome `rejected`, which needs one.",
)
@click.option(
    "--other",
    metavar="SKILL",
    default="",
    help="The skill that was used instead, or with which it is redundant or incompatible.",
)
@click.option(
    "--by",
    type=click.Choice([one.value for one in Reporter]),
    default=Reporter.PERSON.value,
    show_default=True,
    help="Who judged the skill.",
)
@click.option(
    "--task-result",
    type=click.Choice([one.value for one in TaskResult]),
    help="How the task ended.",
)
@json_option
@audited("outcomes.report", "query_id")
def outcome(
    query_id: str,
    words: tuple[str, ...],
    reason: str | None,
    other: str,
    by: str,
    task_result: str | None,
) -> None:
    """Report the outcome of a skill for the task of a query.

    QUERY is the id that `skillbus query` prints. SKILL may also be a skill that is not in the
    answer. OUTCOME is `used`, `helped`, `failed`, `rejected` (with --reason), `superseded` (with
    --other), or `missing`, without SKILL: the library has no skill for the task.

    \b
    Examples:
      skillbus outcome 8d2f6f0d4a4e4c1c9b7a5e1d3c2b1a00 team:trip-cleaning helped
      skillbus outcome 8d2f6f0d4a4e4c1c9b7a5e1d3c2b1a00 team:maps rejected --reason wrong_step
      skillbus outcome 8d2f6f0d4a4e4c1c9b7a5e1d3c2b1a00 missing
    """
    *skill, kind = words
    if len(skill) > 1 or kind not in list(OutcomeKind):
        known = ", ".join(OutcomeKind)
        raise UsageError(f"{' '.join(words)}: write SKILL OUTCOME, where OUTCOME is one of {known}")
    try:
        report = OutcomesReported(
            query_id=query_id,
            outcomes=(
                SkillOutcome(
                    skill_id=skill[0] if skill else "",
                    outcome=OutcomeKind(kind),
                    reason=RejectionReason(reason) if reason else "",
                    other_skill_id=other,
                    by=Reporter(by),
                ),
            ),
            task_result=TaskResult(task_result) if task_result else "",
        )
    except ValidationError as error:
        raise UsageError(describe_validation_error(error)) from None
    with open_backend(read_settings(), writable=False) as backend:
        event_id = backend.submit(report, ORIGIN)
        wait_for_event(backend, event_id)
    data = {"event": event_id, **report.model_dump(mode="json")}
    print_result(data, f"recorded: {' '.join((*skill, kind))}")
