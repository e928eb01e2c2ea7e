"""The catalog and the typed skill graph: protocols, stores, linking, personalised PageRank."""
