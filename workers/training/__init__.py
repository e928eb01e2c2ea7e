"""Training of the small models that ship with skillbus or that a user makes of their own data."""
