"""Commands that start a long-running process."""
