"""Bundles: the answer to a query, its JSON model and its Markdown form."""
