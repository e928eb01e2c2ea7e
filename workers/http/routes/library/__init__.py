"""Routes for browsing the library."""
