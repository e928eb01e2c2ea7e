"""Reviews of skills by people: what waits, and what they decide."""
