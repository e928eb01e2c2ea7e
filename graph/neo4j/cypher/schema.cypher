// Statements of the migration runner by name; the migrations are in `migrations/`.

// name: meta_constraint
CREATE CONSTRAINT meta_key IF NOT EXISTS FOR (m:Meta) REQUIRE m.key IS UNIQUE

// name: schema_node
MERGE (m:Meta {key: 'schema'}) ON CREATE SET m.value = 0

// name: schema_version
OPTIONAL MATCH (m:Meta {key: 'schema'}) RETURN coalesce(m.value, 0)

// name: lock_schema
MATCH (m:Meta {key: 'schema'}) SET m.locked = true REMOVE m.locked RETURN m.value

// name: set_schema
MATCH (m:Meta {key: 'schema'}) SET m.value = $version

// name: await_indexes
CALL db.awaitIndexes($seconds)

// name: components
CALL dbms.components() YIELD name, versions, edition
WHERE name = 'Neo4j Kernel' RETURN versions[0], edition
