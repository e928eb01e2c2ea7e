"""Runs of `skillbus eval` that are kept, to be shown and compared."""
