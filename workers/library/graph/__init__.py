"""The graph of links for people: neighbourhoods, and the walk of an answer."""
