"""Usage: counts of queries, sent skills and outcomes per day, from the stored rows."""
