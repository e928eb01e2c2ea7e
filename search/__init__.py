"""Search: index, encoder and reranker behind protocols; text analysis; exact scores."""
