"""Outcomes: what came of the skills that a query was answered with."""
