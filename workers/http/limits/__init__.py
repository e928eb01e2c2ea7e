"""Limits of what clients may send, and how slowly."""
