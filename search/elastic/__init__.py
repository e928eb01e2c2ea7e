"""The search index of the distributed deployment: Elasticsearch behind `SearchIndex`."""
