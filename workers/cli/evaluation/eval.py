"""`eval`: the group of commands that measure a library on labelled data."""

from __future__ import annotations

import click

from workers.cli.evaluation.ablation import ablation
from workers.cli.evaluation.answers import answers
from workers.cli.evaluation.bundles import bundles
from workers.cli.evaluation.learning import learning
from workers.cli.evaluation.outcomes import outcomes
from workers.cli.evaluation.paging import paging
from workers.cli.evaluation.roles import roles
from workers.cli.evaluation.routing import routing
from workers.cli.evaluation.runs import compare, list_runs, remove
from workers.cli.evaluation.scanner import scanner
from workers.cli.evaluation.sessions import sessions


@click.group("eval")
def evaluate() -> None:
    """Measure ranking, bundles, passages and more on labelled data.

    Runs of `routing`, `bundles` and `outcomes` are kept: `list`, `compare` and `remove` them.
    """


for command in (
    routing,
    paging,
    roles,
    bundles,
    outcomes,
    answers,
    sessions,
    ablation,
    learning,
    scanner,
    list_runs,
    compare,
    remove,
):
    evaluate.add_command(command)
