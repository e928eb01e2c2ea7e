"""Search index of the distributed deployment: `SearchIndex` on Elasticsearch."""
