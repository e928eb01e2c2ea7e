"""Text analysis: tokens, characters, and what a query asks for."""
