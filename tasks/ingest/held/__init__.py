"""Content that ingest holds back: of pinned skills, and updates that wait for review."""
