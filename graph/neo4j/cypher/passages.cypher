// Statements about projected passages by name.

// name: put_passages
MATCH (s:Skill {skill_id: $skill_id})
SET s.locked = true REMOVE s.locked
WITH s WHERE s.seq = $seq
UNWIND $rows AS row
MERGE (p:Passage {skill_id: $skill_id, seq: $seq, place: row.place}) SET p += row.shown
MERGE (s)-[:HAS_PASSAGE]->(p)
RETURN count(*)

// name: put_passage_links
UNWIND $rows AS row
MATCH (a:Passage {skill_id: $skill_id, seq: $seq, place: row.source})
MATCH (b:Passage {skill_id: $skill_id, seq: $seq, place: row.target})
WHERE NOT EXISTS {
    MATCH (a)-[r:PASSAGE_SEQUENCE|PASSAGE_SEMANTIC|PASSAGE_REFERENCE|PASSAGE_CONDITION]->(b)
    WHERE type(r) = row.type
}
CREATE (a)-[r:$(row.type)]->(b)
SET r.weight = row.weight, r.evidence = row.evidence

// name: delete_passages
UNWIND $ids AS id
MATCH (p:Passage) WHERE p.skill_id = id AND p.seq IS NOT NULL AND p.place IS NOT NULL
WITH p LIMIT $limit DETACH DELETE p RETURN count(*)

// name: delete_other_passages
MATCH (p:Passage) WHERE p.skill_id = $skill_id AND p.seq <> $seq AND p.place IS NOT NULL
WITH p LIMIT $limit DETACH DELETE p RETURN count(*)

// name: orphaned_passages
UNWIND ['failed', 'held', 'removed'] AS state
MATCH (s:Skill)-[:HAS_PASSAGE]->() USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = state AND s.skill_id IS NOT NULL
RETURN DISTINCT s.skill_id AS skill_id ORDER BY skill_id LIMIT $limit
