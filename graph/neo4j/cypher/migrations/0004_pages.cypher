// Pages of the catalog by state and by name, in the order of ids. Each index takes the place of one
// that could find, but not sort or begin with the name.
CREATE INDEX skill_state_id IF NOT EXISTS FOR (s:Skill) ON (s.state, s.skill_id);
CREATE INDEX skill_name_key IF NOT EXISTS FOR (s:Skill) ON (s.name_key, s.source_id);
DROP INDEX skill_state IF EXISTS;
DROP INDEX skill_name IF EXISTS;
