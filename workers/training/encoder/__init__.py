"""Training of the bi-encoder: pairs, hard negatives, low-rank layers."""
