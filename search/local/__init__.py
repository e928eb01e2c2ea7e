"""Embedded search index: tantivy, SQLite and numpy."""
