"""Hooks of coding agents: the program that they run, and its installation in their settings."""
