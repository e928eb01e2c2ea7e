"""Routes of reviews: what waits for a person, decisions, and waivers of findings."""
