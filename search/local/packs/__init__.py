"""Packs: copies of store data, in files that processes map into memory."""
