"""`train`: the group of commands that train models."""

from __future__ import annotations

import click

from workers.cli.training.encoder import encoder
from workers.cli.training.ranker import ranker
from workers.cli.training.reranker import reranker
from workers.cli.training.roles import roles


@click.group("train")
def train() -> None:
    """Train models on your own library and labels."""


for command in (roles, encoder, reranker, ranker):
    train.add_command(command)
