"""Submissions by queue: events and queries from any program that can write to a broker; replies."""
