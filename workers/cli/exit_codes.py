"""Exit codes of the command line; 0 is success."""

EXIT_FAILED, EXIT_USAGE, EXIT_NO_SKILL_HIT, EXIT_NEWLY_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130
