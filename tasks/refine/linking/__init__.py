"""Links by a language model: candidates of a skill, the prompt about them, and the verdicts."""
