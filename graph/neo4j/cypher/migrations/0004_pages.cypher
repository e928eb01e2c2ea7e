// Indexes for listing the catalog by state and by name, ordered by skill_id. They replace indexes
// that could not sort by id, or did not begin with the name.
CREATE INDEX skill_state_id IF NOT EXISTS FOR (s:Skill) ON (s.state, s.skill_id);
CREATE INDEX skill_name_key IF NOT EXISTS FOR (s:Skill) ON (s.name_key, s.source_id);
DROP INDEX skill_state IF EXISTS;
DROP INDEX skill_name IF EXISTS;
