"""Encoder and reranker models, and loading them from settings."""
