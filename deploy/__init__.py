"""Deployment of skillbus and its servers; the application does not import this package."""
