"""`refine`: lets a language model refine the published skills."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from config.language_model_settings import NO_MODEL, OFFLINE_STAGES, QUERY_STAGES, ModelStage
from config.settings import Settings
from config.tracing import untraced
from workers.cli.audited import audited
from workers.cli.common import (
    format_count,
    json_option,
    open_catalog,
    print_result,
    print_table,
    print_to_stderr,
    progress_bar,
    read_settings,
    require_source,
)

if TYPE_CHECKING:  # slow to import
    from graph.protocol import Catalog
    from tasks.refine.pauses import RefinePause
    from workers.backend.protocol import Backend
    from workers.library.refinement import RefinementProgress

_POLL_SECONDS = 0.2
_LOOK_SHARE = 10.0
"""Pause between two polls of the library, as a multiple of the duration of the last poll."""

_MIN_STALL_SECONDS = 120.0
_PAUSED_SECONDS = 60.0
"""Time after which an endpoint that does not answer, or limits the rate, is an error."""

_FRUITLESS_RUNS = 3
_ESTIMATED = ("skills", "calls", "prompt_tokens", "answer_tokens")


@click.command()
@click.option("--source", "source_id", help="Only the skills of this source.")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    type=click.Choice(OFFLINE_STAGES),
    help="Only this enabled stage; repeatable.",
)
@click.option(
    "--estimate", is_flag=True, help="Print an estimate of calls and tokens; call no model."
)
@json_option
@audited("skills.refine", "source_id")
def refine(source_id: str | None, stages: tuple[ModelStage, ...], estimate: bool) -> None:
    """Refine published skills with the language model.

    Skills that are not refined yet are sent to it. Answers are stored: no question is sent twice,
    and the next run resumes an interrupted one. If `skillbus serve` or workers run, they refine all
    skills, and this command waits for them.

    \b
    Examples:
      skillbus refine --estimate
      skillbus refine --source team --stage roles
    """
    settings = select_stages(read_settings(), stages)
    if estimate:
        print_result(_estimate(settings, source_id), _print_estimate)
    else:
        print_result(run_refine(settings, source_id), _print_report)


def select_stages(settings: Settings, stages: Sequence[ModelStage]) -> Settings:
    """Return the settings with only these of the stages that refine, or all enabled stages if none
    is named. Raises UsageError if there is no model, or if a stage is off."""
    model = settings.language_model
    if not model.base_url:
        raise UsageError(NO_MODEL)
    enabled = model.offline_stages
    if not enabled:
        raise UsageError(
            f"language_model.stages has none of {', '.join(OFFLINE_STAGES)}; add those that are to "
            "refine skills"
        )
    if off := [stage for stage in stages if stage not in enabled]:
        raise UsageError(f"{', '.join(off)}: not in language_model.stages; add it there first")
    if not stages:
        return settings
    kept = [stage for stage in model.stages if stage in (*stages, *QUERY_STAGES)]
    return settings.model_copy(
        update={"language_model": model.model_copy(update={"stages": tuple(kept)})}
    )


def _estimate(settings: Settings, source_id: str | None) -> dict[str, Any]:
    from workers.library.refinement import estimate_refinement

    _require_library(settings, source_id)
    with progress_bar("reading") as step:
        found = estimate_refinement(settings, source_id, step)
    return {
        "model": found.model,
        "stages": {
            one.stage: {name: getattr(one, name) for name in _ESTIMATED} for one in found.stages
        },
        "tokens_left": found.tokens_left,
    }


def _print_estimate(data: Mapping[str, Any]) -> None:
    rows = [
        (stage, *(f"{counts[name]:,}" for name in _ESTIMATED))
        for stage, counts in data["stages"].items()
    ]
    print_table(rows, ("stage", "skills", "calls", "prompt tokens", "answer tokens, at most"))
    if data["tokens_left"] is not None:
        click.echo(f"{data['tokens_left']:,} tokens are left today (language_model.daily_tokens)")


def run_refine(settings: Settings, source_id: str | None) -> dict[str, Any]:
    """Have the skills refined, wait until they are, and return counts by stage.

    Raises TransientError when the tokens of the day are spent or there is no
    progress, MisconfiguredError when the endpoint refuses the settings. Unrefined
    skills are left to a later run.
    """
    from workers.backend.factory import open_backend
    from workers.library.refinement import open_progress

    started = time.monotonic()
    _require_library(settings, source_id)
    with (
        ExitStack() as stack,
        open_backend(settings, writable=True, embeds="skills", refine="on request") as backend,
    ):
        progress = open_progress(settings, backend.graph, source_id, stack)
        with progress_bar("refining") as step:
            _wait_until_refined(backend, progress, step)
        _wait_until_published(backend)
        report = progress.count_by_stage()
    return {
        "model": settings.language_model.model,
        "stages": report,
        "seconds": round(time.monotonic() - started, 2),
    }


def _require_library(settings: Settings, source_id: str | None) -> None:
    """Raise UsageError if there is no library, or no skill in the source."""
    with open_catalog(settings) as graph:
        require_source(graph.list_sources(), source_id)
        if source_id is not None and not _has_skills(graph, source_id):
            raise UsageError(
                f"source {source_id!r} has no published skill; `skillbus failures` lists skills "
                "that failed"
            )


def _has_skills(graph: Catalog, source_id: str) -> bool:
    from graph.entry_filter import EntryFilter
    from graph.records import SkillState

    selection = EntryFilter(source_id=source_id, state=SkillState.PUBLISHED)
    return bool(graph.list_entries(selection, "", 1))


def _wait_until_refined(
    backend: Backend, progress: RefinementProgress, step: Callable[[int, int], None]
) -> None:
    """Request refinement until no skill is missing; raises an error without progress."""
    watch = _StallWatch(backend.settings.language_model.timeout_seconds)
    fruitless_runs = 0
    while True:
        began = time.monotonic()
        with untraced():
            missing = [entry.skill_id for entry in progress.find_missing()]
        step(progress.total - len(missing), progress.total)
        if not missing:
            return
        with untraced():
            sign, pause = progress.get_sign_of_life(), backend.get_refine_pause()
        if watch.has_moved(sign):
            fruitless_runs = 0
        watch.check(pause, len(missing))
        if pause is not None:
            fruitless_runs = 0
        elif backend.request_refinement(missing):
            fruitless_runs += 1
        if fruitless_runs > _FRUITLESS_RUNS:
            raise PermanentError(
                f"{format_count(len(missing), 'skill')} could not be refined, such as "
                f"{missing[0]}; `skillbus dead list` has the reasons"
            )
        time.sleep(max(_POLL_SECONDS, _LOOK_SHARE * (time.monotonic() - began)))


def _wait_until_published(backend: Backend) -> None:
    """Wait until the skills are published again with the results of the model."""
    with untraced():
        while backend.is_refining() or backend.graph.list_awaiting_ingest(1):
            if problem := backend.get_problem():
                raise TransientError(f"{problem}; accepted work resumes with the next run")
            time.sleep(_POLL_SECONDS)
    backend.wait_until_linked()


class _StallWatch:
    """Detects that refinement makes no progress. timeout_seconds: of a call to the model."""

    def __init__(self, timeout_seconds: float) -> None:
        from tasks.language_model.protocol import MAX_ANSWERS  # slow to import

        self._stall_seconds = max(_MIN_STALL_SECONDS, MAX_ANSWERS * timeout_seconds)
        self._sign: tuple[int, ...] = ()
        self._moved_at = time.monotonic()
        self._is_noted = False

    def has_moved(self, sign: tuple[int, ...]) -> bool:
        """Return whether the numbers that change with the work have changed since the last call."""
        if sign == self._sign:
            return False
        self._sign, self._moved_at, self._is_noted = sign, time.monotonic(), False
        return True

    def check(self, pause: RefinePause | None, waiting: int) -> None:
        """Raise if the work is paused permanently, or has made no progress for long."""
        seconds = time.monotonic() - self._moved_at
        skills = "1 skill waits" if waiting == 1 else f"{waiting} skills wait"
        if pause is None:
            if seconds > self._stall_seconds:
                raise TransientError(
                    f"nothing was refined for {seconds:.0f} s; {skills}. `skillbus status` shows "
                    "workers and queues"
                )
            return
        if pause.cause == "tokens":
            raise TransientError(
                f"today's tokens are spent ({pause.reason}); {skills}. Run this again after "
                "midnight UTC, or raise language_model.daily_tokens"
            )
        if pause.cause == "settings":
            raise MisconfiguredError(f"{pause.reason}; {skills}")
        if seconds > _PAUSED_SECONDS:
            raise TransientError(
                f"the language model does not answer: {pause.reason}; {skills}. Run this again "
                "when it does"
            )
        if not self._is_noted:
            self._is_noted = True
            print_to_stderr(f"waiting: {pause.reason}")


def _print_report(report: Mapping[str, Any]) -> None:
    for stage, counts in report["stages"].items():
        invalid = f", {counts['invalid']} with invalid answers" if counts["invalid"] else ""
        click.echo(f"{stage}: {format_count(counts['refined'], 'skill')} refined{invalid}")
    if any(counts["invalid"] for counts in report["stages"].values()):
        print_to_stderr("`skillbus failures --refinement` lists the invalid answers")
