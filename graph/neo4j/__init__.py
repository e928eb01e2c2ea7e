"""The distributed store of catalog and links: Neo4j through Cypher."""
