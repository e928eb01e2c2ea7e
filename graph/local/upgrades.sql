-- Migrations: the statements under a number upgrade a file from the schema before it.

-- name: 2
ALTER TABLE sources ADD COLUMN branch TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN path TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN licences TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sources ADD COLUMN credential_file TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN poll_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE sources ADD COLUMN commit_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN last_attempt REAL NOT NULL DEFAULT 0;
ALTER TABLE sources ADD COLUMN last_error TEXT NOT NULL DEFAULT '';

-- name: 3
DROP INDEX skills_by_name;
CREATE INDEX skills_by_name ON skills (name_key, source_id) WHERE name_key IS NOT NULL;
CREATE INDEX skills_by_state ON skills (state, skill_id);

-- name: 4
ALTER TABLE skills ADD COLUMN scanner INTEGER NOT NULL DEFAULT 0;

-- name: 5
ALTER TABLE skills ADD COLUMN judgements TEXT NOT NULL DEFAULT '';

-- name: 6
CREATE TABLE dismissed_links (
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    type TEXT NOT NULL,
    reason TEXT NOT NULL,
    dismissed REAL NOT NULL,
    PRIMARY KEY (source, target, type)
) WITHOUT ROWID;

-- name: 7
-- Earlier versions published a skill with its vectors.
ALTER TABLE skills ADD COLUMN vectors INTEGER NOT NULL DEFAULT 0;
UPDATE skills SET vectors = 1 WHERE seq > 0;
CREATE INDEX skills_without_vectors ON skills (uses DESC, skill_id) WHERE seq > 0 AND vectors = 0;

-- name: 8
CREATE TABLE source_groups (
    source_id TEXT PRIMARY KEY,
    groups TEXT NOT NULL
) WITHOUT ROWID;

-- name: 9
-- The reconciler fills in scripts and rules of what is published.
INSERT INTO meta VALUES ('rules_version', 0);
ALTER TABLE skills ADD COLUMN has_scripts INTEGER;
DROP INDEX skills_by_state;
CREATE INDEX skills_by_state ON skills (
    state, skill_id, has_scripts, paged, safety_level, language, licence);
CREATE INDEX skills_judged ON skills (skill_id) WHERE judgements != '';
CREATE TABLE finding_rules (
    rule TEXT NOT NULL,
    skill_id TEXT NOT NULL,
    PRIMARY KEY (rule, skill_id)
) WITHOUT ROWID;
CREATE INDEX finding_rules_by_skill ON finding_rules (skill_id);

-- name: 10
DROP INDEX skills_by_state;
CREATE INDEX skills_by_state ON skills (
    state, skill_id, has_scripts, paged, safety_level, language, licence, seq, scanner);
CREATE INDEX skills_by_id ON skills (id, skill_id);

-- name: 11
-- The reconciler parses what is published again.
ALTER TABLE skills ADD COLUMN parser INTEGER NOT NULL DEFAULT 0;
CREATE INDEX skills_by_parser ON skills (parser, skill_id) WHERE seq > 0;
