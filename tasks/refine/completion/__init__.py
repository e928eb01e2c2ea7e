"""Texts that complete a skill for search and training: the stages `record` and `prompts`."""
