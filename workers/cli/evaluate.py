"""`eval`: rank, page and classify one's own labelled tasks."""

from __future__ import annotations

import click


@click.group("eval")
def evaluate() -> None:
    """Measure routing, paging and roles on labelled data of your own."""
