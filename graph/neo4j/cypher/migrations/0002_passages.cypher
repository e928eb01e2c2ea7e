// Passages and their links, for exploring the graph; written with the setting
// `servers.neo4j_passages`. No query of skillbus reads them.
//
// (:Skill)-[:HAS_PASSAGE]->(:Passage {skill_id, seq, place, …})
// (:Passage)-[:PASSAGE_SEQUENCE|PASSAGE_SEMANTIC|PASSAGE_REFERENCE|PASSAGE_CONDITION
//             {weight, evidence}]->(:Passage)
CREATE CONSTRAINT passage_place IF NOT EXISTS
FOR (p:Passage) REQUIRE (p.skill_id, p.seq, p.place) IS UNIQUE;
