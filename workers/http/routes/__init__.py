"""Routes of the HTTP API, by resource."""
