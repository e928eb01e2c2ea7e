"""Commands about outcomes."""
