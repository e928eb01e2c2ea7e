"""`skillbus train`: trains the role classifier, the ranker, the reranker and the encoder."""
