"""Deliveries of repository hosts: who sent one, what was pushed, and which sources that changes."""
