"""The distributed catalog and link store: Neo4j through Cypher."""
