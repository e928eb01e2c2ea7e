"""Links learned from outcomes."""
