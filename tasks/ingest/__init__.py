"""Ingest: from an event to published, embedded and linked skills."""
