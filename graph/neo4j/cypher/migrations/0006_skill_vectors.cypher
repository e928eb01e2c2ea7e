// Skill vectors that are stored after a skill is published. `without_vectors` (= -uses) is set only
// while they are missing, as `unpaged` is: skills of earlier versions have theirs.
CREATE INDEX skill_without_vectors IF NOT EXISTS FOR (s:Skill) ON (s.without_vectors, s.skill_id);
