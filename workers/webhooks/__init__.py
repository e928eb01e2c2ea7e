"""Webhook deliveries of repository hosts: signatures, payloads, and the sources they change."""
