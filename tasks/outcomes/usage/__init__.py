"""Usage: what was asked, sent and reported on each day, counted from the stored rows."""
