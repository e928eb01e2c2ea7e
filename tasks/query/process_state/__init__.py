"""State of one process that its queries share: caches, measured speeds, counters."""
