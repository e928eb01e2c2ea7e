"""Origins of the queries that models are trained and evaluated on, as reports name them."""

LABELLED = "labelled prompts"
"""Prompts of `--feedback`."""

MODEL_PROMPTS = "prompts of the language model"
TRIGGERS = "trigger phrases"
SECTIONS = "sections"
OWN_TEXT = "own text"
