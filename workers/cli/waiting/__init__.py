"""What commands do not wait for: missing roots of other sources, failed embeddings."""
