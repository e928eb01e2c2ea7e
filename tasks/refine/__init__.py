"""Refinement: additions by a language model to published skills, on a queue of their own."""
