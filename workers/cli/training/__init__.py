"""`skillbus train`: train the role classifier and the reranker."""
