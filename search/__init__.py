"""Search: the index, the encoder and the reranker behind protocols; tokens, fusion and scoring."""
