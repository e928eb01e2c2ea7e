"""Training of the reranker: a cross-encoder on lists of a needed skill and others."""
