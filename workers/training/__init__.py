"""Training of models: role classifier, ranker, rerankers and encoders."""
