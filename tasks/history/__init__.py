"""The history of skills: which revisions are kept, and their store in a home."""
