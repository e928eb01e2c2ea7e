"""Outcomes: reports on whether the skills of an answer helped with the task."""
