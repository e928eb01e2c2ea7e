"""Roles of passages by a language model: the stage `roles`."""
