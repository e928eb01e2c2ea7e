"""The command line. `program` has the table of commands; each has a module of its name."""

from workers.cli.program import main

__all__ = ["main"]
