"""Kept runs of `skillbus eval`: creation, comparison and curves."""
