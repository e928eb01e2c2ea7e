"""What callers asked lately."""
