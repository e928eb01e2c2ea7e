"""Packs: what the store has, repeated in files that processes map into memory."""
