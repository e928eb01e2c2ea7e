-- Schema of the embedded catalog and link store. A removed skill keeps its row until it is pruned:
-- its numbers show that a late event is stale.
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sources (
    source_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    root TEXT NOT NULL,
    last_success REAL NOT NULL,
    branch TEXT NOT NULL DEFAULT '',
    path TEXT NOT NULL DEFAULT '',
    licences TEXT NOT NULL DEFAULT '[]',
    credential_file TEXT NOT NULL DEFAULT '',
    poll_seconds REAL NOT NULL DEFAULT 0,
    commit_id TEXT NOT NULL DEFAULT '',
    last_attempt REAL NOT NULL DEFAULT 0,
    last_error TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

CREATE TABLE source_groups (
    source_id TEXT PRIMARY KEY,
    groups TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE cursor (
    source_id TEXT NOT NULL,
    path TEXT NOT NULL,
    signature TEXT NOT NULL,
    PRIMARY KEY (source_id, path)
) WITHOUT ROWID;

-- seq: the pointer, 0 without one. served_seq: the highest seq with an outcome (published,
-- unchanged, removed or failed); a seq not above it is stale. wanted_seq is either above served_seq
-- or not above seq, so that a skill waits for ingest exactly when wanted_seq > seq. name_key: the
-- normalised name of a published skill. pointer_epoch, row_epoch: epoch of the last change of the
-- pointer, and of the links. mark_epoch: epoch at which linking was requested, NULL when it is done.
-- vectors: the skill vectors are stored. paged: the sections have vectors. scanner: version of the
-- scanner that computed safety_level. parser: version of the parser that made the revision.
-- judgements: second opinions about this content as JSON, '' without one. has_scripts: NULL while
-- neither this nor the rules of findings are known.
CREATE TABLE skills (
    id INTEGER PRIMARY KEY,
    skill_id TEXT NOT NULL UNIQUE,
    source_id TEXT NOT NULL,
    path TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    name TEXT NOT NULL DEFAULT '',
    name_key TEXT,
    description TEXT NOT NULL DEFAULT '',
    seq INTEGER NOT NULL DEFAULT 0,
    content_hash TEXT NOT NULL DEFAULT '',
    wanted_seq INTEGER NOT NULL DEFAULT 0,
    served_seq INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    warnings INTEGER NOT NULL DEFAULT 0,
    safety_level INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    language TEXT NOT NULL DEFAULT '',
    licence TEXT NOT NULL DEFAULT '',
    paged INTEGER NOT NULL DEFAULT 0,
    uses INTEGER NOT NULL DEFAULT 0,
    updated REAL NOT NULL DEFAULT 0,
    pointer_epoch INTEGER NOT NULL DEFAULT 0,
    row_epoch INTEGER NOT NULL DEFAULT 0,
    mark_epoch INTEGER,
    scanner INTEGER NOT NULL DEFAULT 0,
    judgements TEXT NOT NULL DEFAULT '',
    vectors INTEGER NOT NULL DEFAULT 0,
    has_scripts INTEGER,
    parser INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX skills_by_path ON skills (source_id, path);
CREATE INDEX skills_by_name ON skills (name_key, source_id) WHERE name_key IS NOT NULL;
-- Contains the columns of filters and of safety records, so that lists skip skills, and queries check
-- their candidates, without reading rows.
CREATE INDEX skills_by_state ON skills (
    state, skill_id, has_scripts, paged, safety_level, language, licence, seq, scanner);
-- A row of `skills` takes some 900 bytes: the ids at the other ends of links are read from here.
CREATE INDEX skills_by_id ON skills (id, skill_id);
CREATE INDEX skills_by_pointer_epoch ON skills (pointer_epoch);
CREATE INDEX skills_by_row_epoch ON skills (row_epoch);
CREATE INDEX skills_marked ON skills (mark_epoch, skill_id) WHERE mark_epoch IS NOT NULL;
CREATE INDEX skills_waiting ON skills (wanted_seq) WHERE wanted_seq > served_seq;
CREATE INDEX skills_without_vectors ON skills (uses DESC, skill_id) WHERE seq > 0 AND vectors = 0;
CREATE INDEX skills_unpaged ON skills (uses DESC, skill_id) WHERE seq > 0 AND paged = 0;
CREATE INDEX skills_by_parser ON skills (parser, skill_id) WHERE seq > 0;
CREATE INDEX skills_judged ON skills (skill_id) WHERE judgements != '';

-- The rules of the findings of published skills.
CREATE TABLE finding_rules (
    rule TEXT NOT NULL,
    skill_id TEXT NOT NULL,
    PRIMARY KEY (rule, skill_id)
) WITHOUT ROWID;
CREATE INDEX finding_rules_by_skill ON finding_rules (skill_id);

-- Link features of a published skill. Vectors are packed (term i64, weight f32) pairs.
CREATE TABLE facts (
    skill INTEGER PRIMARY KEY,
    signature BLOB NOT NULL,
    description_terms BLOB NOT NULL,
    mentions TEXT NOT NULL
);

-- The normalised names that published skills mention.
CREATE TABLE mentions (
    key TEXT NOT NULL,
    source_id TEXT NOT NULL,
    skill INTEGER NOT NULL,
    PRIMARY KEY (key, source_id, skill)
) WITHOUT ROWID;
CREATE INDEX mentions_by_skill ON mentions (skill);

CREATE TABLE links (
    owner INTEGER NOT NULL,
    source INTEGER NOT NULL,
    target INTEGER NOT NULL,
    type TEXT NOT NULL,
    weight REAL NOT NULL,
    evidence TEXT NOT NULL,
    PRIMARY KEY (owner, source, target, type)
) WITHOUT ROWID;
-- The weight makes these indexes covering for reading adjacency.
CREATE INDEX links_by_source ON links (source, weight);
CREATE INDEX links_by_target ON links (target, weight);

-- Links that a person dismissed, by skill_id, so that dismissals outlive the skills. The ends of an
-- undirected type are sorted.
CREATE TABLE dismissed_links (
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    type TEXT NOT NULL,
    reason TEXT NOT NULL,
    dismissed REAL NOT NULL,
    PRIMARY KEY (source, target, type)
) WITHOUT ROWID;
