-- The embedded index: one row a revision, written once, and vectors under the hash of their text.
-- Row numbers are never used twice, because the lexical engine knows revisions by them.
CREATE TABLE IF NOT EXISTS meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS revisions (
    number         INTEGER PRIMARY KEY AUTOINCREMENT,
    skill_id       TEXT    NOT NULL,
    seq            INTEGER NOT NULL,
    content_hash   TEXT    NOT NULL,
    filters        TEXT    NOT NULL,  -- JSON: the four lists of Filters
    vector_hashes  BLOB    NOT NULL,  -- two hashes of 16 bytes
    section_hashes BLOB    NOT NULL,  -- one hash of 16 bytes a section
    parsed         BLOB    NOT NULL,
    forward        BLOB    NOT NULL,
    passage_terms  BLOB    NOT NULL,
    UNIQUE (skill_id, seq)
);

CREATE TABLE IF NOT EXISTS vectors (
    hash  BLOB PRIMARY KEY,
    scale REAL NOT NULL,              -- 0: float32; else int8 times scale
    data  BLOB NOT NULL
) WITHOUT ROWID;

-- Which revisions use a vector; the last one to go takes it along.
CREATE TABLE IF NOT EXISTS uses (
    hash   BLOB    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) WITHOUT ROWID;
