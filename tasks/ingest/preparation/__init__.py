"""Preparation of skills for the index: all of ingest that needs no store."""
