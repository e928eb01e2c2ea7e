"""The picture of a part of the graph of links."""
