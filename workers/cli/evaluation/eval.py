"""`eval`: the group of commands that measure a library on labelled data."""

from __future__ import annotations

from workers.cli.lazy_group import LazyGroup

evaluate = LazyGroup(
    "eval",
    help="""Measure ranking, bundles, passages and more on labelled data.

    Runs of `routing`, `bundles` and `outcomes` are kept: `list`, `compare` and `remove` them.
    """,
    table={
        "routing": "workers.cli.evaluation.routing:routing",
        "bundles": "workers.cli.evaluation.bundles:bundles",
        "answers": "workers.cli.evaluation.answers:answers",
        "paging": "workers.cli.evaluation.paging:paging",
        "sessions": "workers.cli.evaluation.sessions:sessions",
        "roles": "workers.cli.evaluation.roles:roles",
        "scanner": "workers.cli.evaluation.scanner:scanner",
        "outcomes": "workers.cli.evaluation.outcomes:outcomes",
        "learning": "workers.cli.evaluation.learning:learning",
        "ablation": "workers.cli.evaluation.ablation:ablation",
        "list": "workers.cli.evaluation.runs:list_runs",
        "compare": "workers.cli.evaluation.runs:compare",
        "remove": "workers.cli.evaluation.runs:remove",
    },
)
