"""Outcomes: answered queries and what came of their skills, stored and rolled up."""
