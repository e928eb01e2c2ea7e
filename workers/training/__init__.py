"""Training of the role classifier and of rerankers."""
