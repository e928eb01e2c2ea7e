"""`train`: the group of commands that train models."""

from __future__ import annotations

from workers.cli.lazy_group import LazyGroup

train = LazyGroup(
    "train",
    help="Train models on your own library and labels.",
    table={
        "roles": ("training.roles", "Train the classifier of roles on labelled lines."),
        "encoder": ("training.encoder", "Fine-tune the encoder on the library."),
        "reranker": (
            "training.reranker",
            "Train a cross-encoder that reads a task together with a skill.",
        ),
        "ranker": ("training.ranker", "Learn the weights of the score from labelled prompts."),
    },
)
