"""Encoders and rerankers."""
