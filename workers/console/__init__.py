"""The web console: pages over the services of the HTTP API."""
