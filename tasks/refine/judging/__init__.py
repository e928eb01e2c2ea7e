"""Judgements of the safety of skills by a language model: the stage `judge`."""
