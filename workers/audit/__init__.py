"""The audit log: who changed what, and what came of it."""
