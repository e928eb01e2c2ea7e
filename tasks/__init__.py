"""Celery tasks (ids in, JSON out), the stages they call, and their policies."""
