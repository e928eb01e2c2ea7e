"""`eval learning`: replays labelled prompts as a stream and ranks other prompts meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from config.errors import UsageError
from tasks.services import Services
from workers.cli.common import (
    format_count,
    json_option,
    print_result,
    print_to_stderr,
    progress_bar,
    read_settings,
)
from workers.cli.evaluation.options import find_missing_skills, open_library, wait_option
from workers.cli.parameter_types import OutputFile
from workers.library.user_files import write_text

if TYPE_CHECKING:
    from workers.evaluation.learning import ScenarioResult
    from workers.evaluation.learning_stream import LabelledTask, Split


@click.command("learning")
@click.argument("tasks", type=click.Path(path_type=Path))
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of all random choices.",
)
@click.option(
    "--scenario",
    "chosen",
    multiple=True,
    help="Only this stream; repeatable. By default all: clean, '20 % flipped', '40 % flipped', "
    "tokens, poisoned, replaced, drift.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    help="Only this way to learn, compared with none; repeatable. By default all: memory, links, "
    "training (of the ranker), all (the three together).",
)
@click.option("--out", type=OutputFile(), help="Write the figures as JSON.")
@click.option(
    "--plots", type=click.Path(path_type=Path, file_okay=False), help="Write SVG plots here."
)
@wait_option
@json_option
def learning(
    tasks: Path,
    seed: int,
    chosen: tuple[str, ...],
    arms: tuple[str, ...],
    out: Path | None,
    plots: Path | None,
    wait: bool,
) -> None:
    """Replay labelled prompts as outcomes, and rank other prompts.

    TASKS is JSONL with `task_id`, `instruction` and `gt_skill_ids`, several prompts for a skill.
    Half of the prompts of four in five skills are replayed: their skills helped, other skills of
    the answer were rejected. The other prompts are ranked at four points of the stream, with each
    way in which skillbus learns and with all of them. Outcomes of the library itself are neither
    used nor changed.

    \b
    Example:
      skillbus eval learning prompts.jsonl --scenario clean --plots build
    """
    from workers.evaluation.learning import Replay, to_json_data, to_markdown
    from workers.evaluation.learning_arms import ARMS
    from workers.evaluation.learning_stream import SCENARIOS, read_tasks
    from workers.evaluation.predictions import read_jsonl

    _check_names("scenario", chosen, [scenario.name for scenario in SCENARIOS])
    _check_names("arm", arms, list(ARMS))
    labelled = read_tasks(read_jsonl(tasks, ("task_id", "instruction")))
    scenarios = [one for one in SCENARIOS if not chosen or one.name in chosen]
    with open_library(read_settings(), wait) as services, progress_bar("replaying") as show:
        known = _find_known(tasks, labelled, services)
        split = _split(tasks, known, seed)
        replay = Replay(services, known, seed, arms or tuple(ARMS))
        total, done = replay.count_steps(scenarios), 0

        def on_step() -> None:
            nonlocal done
            done += 1
            show(done, total)

        replay.rank_base(on_step)
        results = [replay.run(scenario, on_step) for scenario in scenarios]
    data = to_json_data(results, split, seed, len(labelled))
    print_result(data, lambda _: click.echo(to_markdown(results), nl=False))
    if out is not None:
        write_text(out, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    if plots is not None:
        _write_plots(plots, results)


def _find_known(path: Path, tasks: list[LabelledTask], services: Services) -> list[LabelledTask]:
    """Return the tasks with a skill in the library; prints how many others are left out."""
    if not tasks:
        raise UsageError(f"{path}: no prompt has `gt_skill_ids`; add the right skills of each")
    needed = {name for task in tasks for name in task.right}
    missing = set(find_missing_skills(path, needed, services))
    known = [task for task in tasks if not missing.issuperset(task.right)]
    if len(known) < len(tasks):
        print_to_stderr(
            f"{len(tasks) - len(known)} of {len(tasks)} prompts are left out: their skills are not "
            f"in the library, for example {min(missing)}"
        )
    return known


def _split(path: Path, tasks: list[LabelledTask], seed: int) -> Split:
    """Split the prompts into replayed and held out; prints how many are in neither part."""
    from workers.evaluation.learning_stream import split_tasks

    split = split_tasks(tasks, seed)
    if not split.replayed or not split.held_out:
        raise UsageError(
            f"{path}: no skill has two prompts with `gt_skill_ids`; write several for each skill, "
            "since half of them are replayed"
        )
    mixed = len(tasks) - split.count()
    if mixed:
        print_to_stderr(
            f"{mixed} of {len(tasks)} prompts are left out: they need both replayed skills and "
            "skills without outcomes"
        )
    return split


def _check_names(what: str, given: tuple[str, ...], known: list[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"no {what} {', '.join(unknown)}; {what}s: {', '.join(known)}")


def _write_plots(folder: Path, results: list[ScenarioResult]) -> None:
    """Write `learning-SCENARIO.svg`: Hit@1 of prompts that were not replayed, over the stream."""
    from workers.evaluation.line_plot import Line, draw_lines

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}") from error
    for result in results:
        lines = []
        for colour, (arm, checkpoints) in enumerate(result.arms.items()):
            held_out = [(one.replayed, one.figures) for one in checkpoints]
            new = [(one.replayed, one.new) for one in checkpoints]
            for what, figures in ((arm, held_out), (f"{arm}, new skills", new)):
                points = tuple((float(at), one["Hit@1"]) for at, one in figures if "Hit@1" in one)
                if points:
                    lines.append(Line(what, points, colour, is_dashed=figures is new))
        name = result.name.replace(" % ", "-").replace(" ", "-")
        image = draw_lines(f"stream: {result.name}", "prompts replayed", "Hit@1", lines)
        write_text(folder / f"learning-{name}.svg", image)
    print_to_stderr(f"{format_count(len(results), 'plot')} written to {folder}")
