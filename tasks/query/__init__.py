"""Queries: from a task in words to a bundle."""
