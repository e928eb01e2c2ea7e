// Schema of the Neo4j catalog and link store. Statements end with a semicolon at the end of a line;
// each is idempotent. A removed skill keeps its node until it is pruned: its numbers show that a
// late event is stale.
//
// (:Meta {key, value})  the counters `seq` and `epoch`, and `schema`, the last migration run
// (:Source)  (:Seen {source_id, path, signature})  file signatures of a source
// (:Skill)   seq: the pointer, 0 without one. served_seq: the highest seq with an outcome. Of these
//            are set only while they apply: waiting (= wanted_seq), mark_epoch, unpaged (= -uses),
//            name_key. pointer_epoch, row_epoch: of the last change of pointer and links.
// (:Facts {skill_id, …})  link features of a published skill, which queries do not read
// (:Mention {key, source_id, skill_id})  a normalised name that a published skill mentions
// (:Skill)-[:DEPENDENCY|WORKFLOW|SEMANTIC|ALTERNATIVE|CONFLICT {owner, weight, evidence}]->(:Skill)
CREATE CONSTRAINT source_id IF NOT EXISTS FOR (s:Source) REQUIRE s.source_id IS UNIQUE;
CREATE CONSTRAINT seen_path IF NOT EXISTS FOR (c:Seen) REQUIRE (c.source_id, c.path) IS UNIQUE;
CREATE CONSTRAINT skill_id IF NOT EXISTS FOR (s:Skill) REQUIRE s.skill_id IS UNIQUE;
CREATE CONSTRAINT facts_skill IF NOT EXISTS FOR (f:Facts) REQUIRE f.skill_id IS UNIQUE;
CREATE INDEX skill_path IF NOT EXISTS FOR (s:Skill) ON (s.source_id, s.path);
CREATE INDEX skill_name IF NOT EXISTS FOR (s:Skill) ON (s.source_id, s.name_key);
CREATE INDEX skill_state IF NOT EXISTS FOR (s:Skill) ON (s.state);
CREATE INDEX skill_pointer_epoch IF NOT EXISTS FOR (s:Skill) ON (s.pointer_epoch);
CREATE INDEX skill_row_epoch IF NOT EXISTS FOR (s:Skill) ON (s.row_epoch);
CREATE INDEX skill_marked IF NOT EXISTS FOR (s:Skill) ON (s.mark_epoch, s.skill_id);
CREATE INDEX skill_waiting IF NOT EXISTS FOR (s:Skill) ON (s.waiting, s.skill_id);
CREATE INDEX skill_unpaged IF NOT EXISTS FOR (s:Skill) ON (s.unpaged, s.skill_id);
CREATE INDEX mention_key IF NOT EXISTS FOR (m:Mention) ON (m.key, m.source_id);
CREATE INDEX mention_skill IF NOT EXISTS FOR (m:Mention) ON (m.skill_id);
CREATE INDEX dependency_owner IF NOT EXISTS FOR ()-[r:DEPENDENCY]-() ON (r.owner);
CREATE INDEX workflow_owner IF NOT EXISTS FOR ()-[r:WORKFLOW]-() ON (r.owner);
CREATE INDEX semantic_owner IF NOT EXISTS FOR ()-[r:SEMANTIC]-() ON (r.owner);
CREATE INDEX alternative_owner IF NOT EXISTS FOR ()-[r:ALTERNATIVE]-() ON (r.owner);
CREATE INDEX conflict_owner IF NOT EXISTS FOR ()-[r:CONFLICT]-() ON (r.owner);
MERGE (m:Meta {key: 'seq'}) ON CREATE SET m.value = 0;
MERGE (m:Meta {key: 'epoch'}) ON CREATE SET m.value = 0;
