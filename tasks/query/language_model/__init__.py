"""Stages of a query that ask the language model: rewrite and select."""
