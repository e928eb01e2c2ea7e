"""Queries over HTTP: the service of the routes and of the console, and the wait for answers."""
