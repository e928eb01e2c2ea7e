"""Routes of reviews: skills that wait for a person, decisions, and waivers of findings."""
