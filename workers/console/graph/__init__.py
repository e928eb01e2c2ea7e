"""Pictures of parts of the graph of links."""
