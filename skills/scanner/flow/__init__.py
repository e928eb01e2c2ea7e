"""Data flow in scripts and code blocks: secrets that are sent, and downloads that are run."""
