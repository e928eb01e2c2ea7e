"""The embedded store of catalog and links: one SQLite file."""
