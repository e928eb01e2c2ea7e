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
MERGE (a)-[r:$(row.type)]->(b)
SET r.weight = row.weight, r.evidence = row.evidence

// name: drop_passages
UNWIND $ids AS id MATCH (p:Passage {skill_id: id})
WITH p LIMIT $limit DETACH DELETE p RETURN count(*)

// name: drop_other_passages
MATCH (p:Passage {skill_id: $skill_id}) WHERE p.seq <> $seq
WITH p LIMIT $limit DETACH DELETE p RETURN count(*)

// name: passages_left
MATCH (s:Skill) WHERE s.state IN ['removed', 'failed']
AND EXISTS { MATCH (p:Passage) WHERE p.skill_id = s.skill_id }
RETURN s.skill_id ORDER BY s.skill_id LIMIT $limit
