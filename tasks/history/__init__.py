"""History of skills: selection of the revisions to keep, and their store in a home."""
