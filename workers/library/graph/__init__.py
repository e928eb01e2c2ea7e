"""The graph of links as people look at it: neighbourhoods, and the walk of an answer."""
