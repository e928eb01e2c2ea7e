"""Routes for people who look through the library."""
