"""The journal: accepted events and queries, replies, and dead letters."""
