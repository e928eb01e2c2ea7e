"""Rules of the scanner, by kind of attack."""
