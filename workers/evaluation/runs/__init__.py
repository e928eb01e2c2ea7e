"""Kept runs of `skillbus eval`: made, compared, and drawn as curves."""
