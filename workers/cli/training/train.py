"""`train`: the group of commands that train models."""

from __future__ import annotations

from workers.cli.lazy_group import LazyGroup

train = LazyGroup(
    "train",
    help="Train models on your own library and labels.",
    table={
        "roles": "workers.cli.training.roles:roles",
        "encoder": "workers.cli.training.encoder:encoder",
        "reranker": "workers.cli.training.reranker:reranker",
        "ranker": "workers.cli.training.ranker:ranker",
    },
)
