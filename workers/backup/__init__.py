"""Backup of a library with its journal and outcomes into a folder, and restoration from it."""
