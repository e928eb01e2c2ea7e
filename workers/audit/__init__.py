"""The audit log: records of who changed what, and with what outcome."""
