"""`train`: make the small models of skillbus anew from labelled or own data."""

from __future__ import annotations

import click


@click.group("train")
def train() -> None:
    """Train the small models that skillbus uses."""
