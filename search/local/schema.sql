-- The embedded index: one write-once row per revision, and vectors by the hash of their text.
-- Row numbers are never reused: the lexical engine identifies revisions by them.
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
    section_hashes BLOB    NOT NULL,  -- one hash of 16 bytes per section
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

-- Revisions that a language model completed.
CREATE TABLE IF NOT EXISTS completed (number INTEGER PRIMARY KEY);

-- Revisions with their two skill vectors, in the order in which they got them; as `embedded`.
CREATE TABLE IF NOT EXISTS with_vectors (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    number   INTEGER NOT NULL UNIQUE
);

-- Revisions whose sections all have vectors, in the order in which they got them. Positions are
-- never reused: processes keep the vectors in memory and read those beyond the last they know.
CREATE TABLE IF NOT EXISTS embedded (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    number   INTEGER NOT NULL UNIQUE
);

-- Which revisions use a vector; it is deleted with the last of them.
CREATE TABLE IF NOT EXISTS uses (
    hash   BLOB    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) WITHOUT ROWID;

-- Column files that repeat data of rows, for mapping into memory: the rows up to number `last` are
-- in the first `rows` rows of the files in this folder, whose name is never used again.
CREATE TABLE IF NOT EXISTS packs (
    name    TEXT    PRIMARY KEY,
    version TEXT    NOT NULL,
    folder  TEXT    NOT NULL,
    rows    INTEGER NOT NULL,
    last    INTEGER NOT NULL
) WITHOUT ROWID;

-- One row: what distinguishes this file from all others.
CREATE TABLE IF NOT EXISTS store (identity TEXT NOT NULL);
INSERT INTO store SELECT lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM store);
