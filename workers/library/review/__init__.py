"""Reviews of skills by people: skills that wait, and decisions."""
