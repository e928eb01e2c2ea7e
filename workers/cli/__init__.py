"""The command line. `program` has the table of commands; each has a module of its name."""

from __future__ import annotations

import gc
import sys

from workers.cli.exit_codes import EXIT_INTERRUPTED

_YOUNG_OBJECTS = 50_000
"""Number of new objects that starts a collection. Imports make hundreds of thousands and free few:
with Python's default of 700, collections take a twelfth of the time of a command."""


def main() -> None:
    """Run the command line, or the hook of an agent, which needs none of its modules."""
    words = sys.argv[1:]
    if words[:1] == ["hook"] and not {"-h", "--help"}.intersection(words):
        from workers.agent_hook import prompt_hook

        if words[1:2] and words[1] in prompt_hook.AGENTS:
            sys.exit(prompt_hook.main(words[1:]))
    gc.set_threshold(_YOUNG_OBJECTS)
    try:
        from workers.cli import program  # slow to import
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    program.main()
