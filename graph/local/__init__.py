"""The embedded catalog and link store: one SQLite file."""
