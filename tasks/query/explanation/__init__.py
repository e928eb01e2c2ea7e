"""Explanations: of a bundle, and of what became of single skills."""
