"""Memory in a query: recall what helped with similar tasks, apply it, and explain it."""
