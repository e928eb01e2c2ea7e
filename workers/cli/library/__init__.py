"""Commands about skills and their sources."""
