"""Git repositories as sources: fetched into bare mirrors, read from their objects.

Nothing is checked out, and nothing in a repository is executed.
"""
