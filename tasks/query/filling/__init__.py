"""Filling of bundles with passages within their budget."""
