"""Search of the library for people."""
