"""Git repositories as sources: fetched into bare mirrors, read from their objects.

Nothing is ever checked out, and nothing that a repository brings is executed.
"""
