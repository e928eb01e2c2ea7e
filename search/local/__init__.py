"""The embedded search index: tantivy, SQLite and numpy."""
