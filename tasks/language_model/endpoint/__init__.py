"""Endpoint of a language model: HTTP, completions, refusals, and its state in a process."""
