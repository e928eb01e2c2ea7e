"""Bundles: the answer to a query, as JSON model and as Markdown."""
