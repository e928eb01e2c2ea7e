"""Backup of a library with its journal and outcomes into a folder, and its restoration."""
