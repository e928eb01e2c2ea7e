"""Explanations of a bundle, and of the outcome of single skills."""
