"""What ingest holds back: contents of pinned skills, and updates that wait for a person."""
