"""Fills bundles with passages within their budget."""
