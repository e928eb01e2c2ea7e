"""Names of the origins of queries that models are trained and evaluated on, for reports."""

LABELLED = "labelled prompts"
"""Prompts of `--feedback`."""

MODEL_PROMPTS = "prompts of the language model"
TRIGGERS = "trigger phrases"
SECTIONS = "sections"
OWN_TEXT = "own text"
