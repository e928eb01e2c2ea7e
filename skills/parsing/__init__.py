"""Parsing: from the bytes of a SKILL.md to a typed record with passages."""
