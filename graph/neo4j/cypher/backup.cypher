// Statements by name that copy a catalog out of a database and into an empty database. `$$label`,
// `$$key` and `$$type` are replaced by names that the code defines or has checked.

// name: lock_writers
MATCH (m:Meta) WHERE m.key IN ['seq', 'epoch'] SET m.locked = true REMOVE m.locked
RETURN count(*)

// name: nodes
MATCH (n:$$label) RETURN properties(n)

// name: relations
MATCH (a:$$label)-[r]->(b:$$other) RETURN type(r), $$ids, properties(r)

// name: count_nodes
MATCH (n) WHERE NOT n:Meta RETURN count(n)

// name: add_nodes
UNWIND $rows AS row MERGE (n:$$label {$$key}) SET n = row

// name: add_relations
UNWIND $rows AS row
MATCH (a:$$label {$$from}) MATCH (b:$$other {$$to})
MERGE (a)-[r:$$type {$$key}]->(b) SET r = row[2]
