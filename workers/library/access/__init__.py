"""Which sources a reader may see, and which directories may become sources."""
