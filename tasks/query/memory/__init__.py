"""Memory in a query: recalls skills that helped with similar tasks, applies it, and explains it."""
