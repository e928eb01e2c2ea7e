"""Training of the role classifier on labelled lines."""
