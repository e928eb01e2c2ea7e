"""The command line. `program` has the table of commands; each has a module of its name."""

from __future__ import annotations

import sys

from workers.cli.exit_codes import EXIT_INTERRUPTED


def main() -> None:
    """Run the command line, or the hook of an agent, which needs none of its modules."""
    words = sys.argv[1:]
    if words[:1] == ["hook"] and not {"-h", "--help"}.intersection(words):
        from workers.agent_hook import prompt_hook

        if words[1:2] and words[1] in prompt_hook.AGENTS:
            sys.exit(prompt_hook.main(words[1:]))
    try:
        from workers.cli import program  # slow to import
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    program.main()
