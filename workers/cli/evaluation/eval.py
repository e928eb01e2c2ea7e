"""`eval`: the group of commands that measure a library on labelled data."""

from __future__ import annotations

from workers.cli.lazy_group import LazyGroup

_COMMANDS = {
    "routing": (
        "evaluation.routing",
        "Compare the ranking for each task with the skills it needs.",
    ),
    "bundles": ("evaluation.bundles", "Compare the bundle of each task with the skills it needs."),
    "answers": ("evaluation.answers", "Look for the required lines of queries in their bundles."),
    "paging": ("evaluation.paging", "Compare the selected lines of a skill with required lines."),
    "sessions": ("evaluation.sessions", "Compare a session of short queries with a single query."),
    "roles": ("evaluation.roles", "Classify every line of some skills by its role."),
    "scanner": ("evaluation.scanner", "Measure the safety scanner on labelled skills."),
    "outcomes": ("evaluation.outcomes", "Rank the library for its own labelled prompts."),
    "learning": (
        "evaluation.learning",
        "Replay labelled prompts as outcomes, and rank other prompts.",
    ),
    "ablation": ("evaluation.ablation", "Rank with each stage switched off in turn."),
    "list": ("evaluation.runs:list_runs", "List kept runs, newest first."),
    "compare": ("evaluation.runs", "Compare two kept runs: measures, and prompts that changed."),
    "remove": ("evaluation.runs", "Delete a kept run."),
}

evaluate = LazyGroup(
    "eval",
    help="""Measure ranking, bundles, passages and more on labelled data.

    Runs of `routing`, `bundles` and `outcomes` are kept: `list`, `compare` and `remove` them.
    """,
    table=_COMMANDS,
)
