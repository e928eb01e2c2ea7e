"""Refinement: what a language model adds to published skills, on a queue of its own."""
