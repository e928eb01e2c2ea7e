-- Statements of the embedded store by name. A list is passed as one JSON array, so that the text of
-- a statement does not depend on the list's length. `$$conditions` is replaced by the conditions of
-- an `EntryFilter`.

-- name: allocate_sequence
UPDATE meta SET value = value + ? WHERE key = 'seq' RETURNING value;

-- name: next_epoch
UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value;

-- name: meta_value
SELECT value FROM meta WHERE key = ?;

-- name: set_meta_value
INSERT OR REPLACE INTO meta VALUES (?, ?);

-- name: set_rules_version
UPDATE meta SET value = ? WHERE key = 'rules_version';

-- name: add_skill
INSERT INTO skills (skill_id, source_id, path) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: skill_seqs
SELECT id, seq, served_seq FROM skills WHERE skill_id = ?;

-- name: name_key
SELECT name_key FROM skills WHERE id = ?;

-- name: published_rows
SELECT skill_id, id FROM skills
WHERE seq > 0 AND skill_id IN (SELECT value FROM json_each(?));

-- name: request_ingest
UPDATE skills SET wanted_seq = max(wanted_seq, :seq),
    state = CASE WHEN state = 'removed' THEN 'pending' ELSE state END
WHERE skill_id = :skill_id AND served_seq < :seq;

-- name: publish
UPDATE skills SET state = 'published', name = :name, name_key = :name_key,
    description = :description, seq = :seq, content_hash = :content_hash, served_seq = :seq,
    wanted_seq = max(wanted_seq, :seq), reason = '', warnings = :warnings,
    safety_level = :safety_level, scanner = :scanner, parser = :parser, tokens = :tokens,
    language = :language, licence = :licence, has_scripts = :has_scripts, vectors = :vectors,
    paged = 0,
    updated = :updated, pointer_epoch = :epoch, mark_epoch = :epoch,
    judgements = CASE WHEN content_hash = :content_hash THEN judgements ELSE '' END
WHERE id = :id;

-- name: withdraw
UPDATE skills SET state = :state, reason = :reason, served_seq = :seq,
    wanted_seq = CASE WHEN wanted_seq > :seq THEN wanted_seq ELSE 0 END, updated = :updated,
    name = '', name_key = NULL, description = '', seq = 0, content_hash = '', warnings = 0,
    safety_level = 0, scanner = 0, parser = 0, tokens = 0, language = '', licence = '',
    has_scripts = NULL, vectors = 0, paged = 0, mark_epoch = NULL,
    judgements = '',
    pointer_epoch = CASE WHEN seq > 0 THEN :epoch ELSE pointer_epoch END
WHERE id = :id;

-- name: prune
DELETE FROM skills WHERE state = 'removed' AND wanted_seq <= served_seq AND updated < ?
    AND NOT EXISTS (SELECT 1 FROM links WHERE skills.id IN (owner, source, target))
RETURNING skill_id;

-- name: mark_unchanged
UPDATE skills SET served_seq = :seq,
    wanted_seq = CASE WHEN wanted_seq > :seq THEN wanted_seq ELSE seq END
WHERE skill_id = :skill_id AND seq > 0 AND served_seq < :seq
    AND (:content_hash IS NULL OR content_hash = :content_hash);

-- name: put_facts
INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?);

-- name: delete_facts
DELETE FROM facts WHERE skill = ?;

-- name: add_mention
INSERT INTO mentions (key, source_id, skill) VALUES (?, ?, ?);

-- name: delete_mentions
DELETE FROM mentions WHERE skill = ?;

-- name: add_rule
INSERT INTO finding_rules (rule, skill_id) VALUES (?, ?);

-- name: delete_rules
DELETE FROM finding_rules WHERE skill_id = ?;

-- name: touch_rows
UPDATE skills SET row_epoch = ? WHERE id IN (SELECT value FROM json_each(?));

-- name: touch_linked_rows
UPDATE skills SET row_epoch = :epoch WHERE id IN (
    SELECT source FROM links WHERE owner = :id OR target = :id OR source = :id
    UNION SELECT target FROM links WHERE owner = :id OR target = :id OR source = :id);

-- name: delete_links_of
DELETE FROM links WHERE owner = :id OR source = :id OR target = :id;

-- name: mark_rows
UPDATE skills SET mark_epoch = ? WHERE id IN (SELECT value FROM json_each(?));

-- name: mark_owners
UPDATE skills SET mark_epoch = :epoch WHERE seq > 0 AND id IN (
    SELECT owner FROM links WHERE source IN (SELECT value FROM json_each(:ids))
    UNION SELECT owner FROM links WHERE target IN (SELECT value FROM json_each(:ids)));

-- name: mark_skills
UPDATE skills SET mark_epoch = :epoch
WHERE seq > 0 AND skill_id IN (SELECT value FROM json_each(:ids));

-- name: mark_mentioning
UPDATE skills SET mark_epoch = :epoch WHERE seq > 0 AND id IN (
    SELECT m.skill FROM json_each(:names) n
    JOIN mentions m ON m.key = n.value ->> 0 AND m.source_id = n.value ->> 1
    UNION SELECT m.skill FROM json_each(:keys) k JOIN mentions m ON m.key = k.value);

-- name: entries
FROM skills WHERE skill_id IN (SELECT value FROM json_each(?)) ORDER BY skill_id;

-- name: all_entries
FROM skills ORDER BY skill_id;

-- name: entries_under
FROM skills WHERE source_id = :source_id
    AND (path = :path OR (path >= :path || '/' AND path < :path || '0'))
ORDER BY skill_id;

-- name: entries_of_source
FROM skills WHERE source_id = :source_id ORDER BY skill_id;

-- name: list_entries
FROM skills WHERE skill_id > :after AND skill_id < :end
    $$conditions
ORDER BY skill_id LIMIT :limit;

-- name: list_entries_in_state
FROM skills INDEXED BY skills_by_state
WHERE state = :state AND skill_id > :after AND skill_id < :end
    $$conditions
ORDER BY skill_id LIMIT :limit;

-- name: list_entries_above_level
FROM skills INDEXED BY skills_by_state
WHERE state = 'published' AND skill_id > :after AND skill_id < :end
    AND (safety_level > :level OR judgements != '')
ORDER BY skill_id LIMIT :limit;

-- name: list_judged_entries
FROM skills INDEXED BY skills_judged
WHERE judgements != '' AND state = 'published' AND skill_id > :after AND skill_id < :end
ORDER BY skill_id LIMIT :limit;

-- name: list_entries_of_rule
FROM finding_rules CROSS JOIN skills USING (skill_id)
WHERE rule = :rule AND skill_id > :after AND skill_id < :end AND +state = 'published'
    AND (safety_level > :level OR judgements != '')
ORDER BY skill_id LIMIT :limit;

-- name: list_entries_by_name
FROM skills INDEXED BY skills_by_name
WHERE name_key = :name_key AND name_key != '' AND +skill_id > :after AND +skill_id < :end
    AND (:state IS NULL OR state = :state)
    $$conditions
ORDER BY +skill_id LIMIT :limit;

-- name: count_entries
-- Grouping by one concatenated key takes a sixth of the time of several keys.
SELECT source_id, state, language, licence, safety_level, has_scripts, paged, count(*) FROM skills
GROUP BY source_id || char(0) || state || char(0) || language || char(0) || licence || char(0)
    || safety_level || paged || coalesce(has_scripts, 2);

-- name: count_states_by_source
SELECT asked.value, known.value, (
    SELECT count(*) FROM skills
    WHERE state = known.value AND skill_id > asked.value || ':' AND skill_id < asked.value || ';')
FROM json_each(:source_ids) asked, json_each(:states) known;

-- name: awaiting_ingest
FROM skills WHERE wanted_seq > served_seq ORDER BY wanted_seq, skill_id LIMIT ?;

-- name: awaiting_vectors
SELECT skill_id, seq FROM skills WHERE seq > 0 AND vectors = 0
ORDER BY uses DESC, skill_id LIMIT :limit;

-- name: awaiting_embedding
SELECT skill_id, seq FROM skills WHERE seq > 0 AND paged = 0
ORDER BY uses DESC, skill_id LIMIT :limit;

-- name: parsed_before
SELECT skill_id, seq FROM skills INDEXED BY skills_by_parser
WHERE seq > 0 AND parser < :parser AND wanted_seq <= seq
ORDER BY parser, skill_id LIMIT :limit;

-- name: count_parsed_before
SELECT count(*) FROM skills INDEXED BY skills_by_parser WHERE seq > 0 AND parser < ?;

-- name: mark_parsed
UPDATE skills SET parser = :parser
WHERE skill_id = :skill_id AND seq = :seq AND seq > 0 AND parser < :parser;

-- name: is_unchanged
SELECT 1 FROM skills WHERE id = ? AND seq = ? AND wanted_seq <= seq;

-- name: scanned_before
SELECT skill_id, seq FROM skills
WHERE seq > 0 AND (scanner < :scanner OR (scanner = :scanner AND has_scripts IS NULL))
ORDER BY skill_id LIMIT :limit;

-- name: save_scan
UPDATE skills SET safety_level = :safety_level, has_scripts = :has_scripts, scanner = :scanner
WHERE skill_id = :skill_id AND seq = :seq AND seq > 0
    AND (scanner < :scanner OR (scanner = :scanner AND has_scripts IS NULL));

-- name: judgements
SELECT id, judgements FROM skills WHERE skill_id = ? AND seq > 0 AND content_hash = ?;

-- name: set_judgements
UPDATE skills SET judgements = ? WHERE id = ?;

-- name: mark_vectors_stored
UPDATE skills SET vectors = 1 WHERE skill_id = ? AND seq = ? AND seq > 0;

-- name: mark_embedded
UPDATE skills SET paged = 1 WHERE skill_id = ? AND seq = ? AND seq > 0;

-- name: increment_uses
UPDATE skills SET uses = uses + 1 WHERE skill_id = ?;

-- name: count_states
SELECT state, count(*) FROM skills GROUP BY state;

-- name: count_rest
SELECT (SELECT count(*) FROM skills WHERE seq > 0 AND vectors = 0),
    (SELECT count(*) FROM skills WHERE seq > 0 AND paged = 0),
    (SELECT count(*) FROM skills WHERE mark_epoch IS NOT NULL),
    (SELECT count(*) FROM skills WHERE wanted_seq > served_seq),
    (SELECT count(*) FROM links);

-- name: safety_records
SELECT s.skill_id, s.seq, s.safety_level, s.licence, s.scanner, coalesce(j.judgements, '')
FROM json_each(?) w
    CROSS JOIN skills s INDEXED BY skills_by_state ON s.state = 'published' AND s.skill_id = w.value
    LEFT JOIN skills j INDEXED BY skills_judged ON j.skill_id = s.skill_id AND j.judgements != '';

-- name: changes
SELECT 0, '', value FROM meta WHERE key = 'epoch'
UNION ALL SELECT 1, skill_id, seq FROM skills WHERE pointer_epoch > :epoch
UNION ALL SELECT 2, skill_id, 0 FROM skills WHERE row_epoch > :epoch;

-- name: adjacency
WITH asked AS (SELECT s.id, s.skill_id FROM json_each(?) w JOIN skills s ON s.skill_id = w.value)
SELECT a.skill_id, -l.weight, l.type, 0, t.skill_id
FROM asked a CROSS JOIN links l ON l.source = a.id
    CROSS JOIN skills t INDEXED BY skills_by_id ON t.id = l.target
UNION ALL
SELECT a.skill_id, -l.weight, l.type, 1, s.skill_id
FROM asked a CROSS JOIN links l ON l.target = a.id
    CROSS JOIN skills s INDEXED BY skills_by_id ON s.id = l.source;

-- name: links
WITH asked AS (SELECT s.id, s.skill_id FROM json_each(?) w JOIN skills s ON s.skill_id = w.value),
found AS (
    SELECT a.skill_id AS asked, l.* FROM asked a CROSS JOIN links l ON l.source = a.id
    UNION ALL SELECT a.skill_id, l.* FROM asked a CROSS JOIN links l ON l.target = a.id
    WHERE l.source <> a.id
    UNION ALL SELECT a.skill_id, l.* FROM asked a CROSS JOIN links l ON l.owner = a.id
    WHERE l.source <> a.id AND l.target <> a.id)
SELECT f.asked, o.skill_id, s.skill_id, t.skill_id, f.type, f.weight, f.evidence
FROM found f CROSS JOIN skills o ON o.id = f.owner CROSS JOIN skills s ON s.id = f.source
    CROSS JOIN skills t ON t.id = f.target;

-- name: awaiting_linking
SELECT skill_id, mark_epoch FROM skills WHERE mark_epoch IS NOT NULL
ORDER BY mark_epoch, skill_id LIMIT ?;

-- name: clear_mark
UPDATE skills SET mark_epoch = NULL WHERE skill_id = ? AND mark_epoch = ?;

-- name: dismissed_links
SELECT source, target, type, reason, dismissed FROM dismissed_links
ORDER BY source, target, type;

-- name: dismiss_link
INSERT OR REPLACE INTO dismissed_links VALUES (?, ?, ?, ?, ?);

-- name: restore_link
DELETE FROM dismissed_links WHERE source = ? AND target = ? AND type = ?;

-- name: links_of_type_among
SELECT owner, source, target FROM links WHERE type = :type
    AND source IN (SELECT value FROM json_each(:ids))
    AND target IN (SELECT value FROM json_each(:ids));

-- name: links_of_owner
SELECT source, target, type, weight, evidence FROM links WHERE owner = ?;

-- name: add_link
INSERT INTO links (owner, source, target, type, weight, evidence) VALUES (?, ?, ?, ?, ?, ?);

-- name: delete_link
DELETE FROM links WHERE owner = ? AND source = ? AND target = ? AND type = ?;

-- name: link_features
SELECT s.skill_id, s.source_id, s.path, s.name, f.signature, f.description_terms, f.mentions
FROM json_each(?) w JOIN skills s ON s.skill_id = w.value JOIN facts f ON f.skill = s.id;

-- name: find_by_name
SELECT s.name_key, s.skill_id FROM json_each(:names) w
JOIN skills s ON s.source_id = :source_id AND s.name_key = w.value
ORDER BY s.name_key, s.skill_id;

-- name: published
SELECT s.skill_id FROM json_each(?) w JOIN skills s ON s.skill_id = w.value WHERE s.seq > 0;

-- name: owned
SELECT o.skill_id, s.skill_id, t.skill_id, l.type, l.weight, l.evidence
FROM json_each(?) w JOIN skills o ON o.skill_id = w.value JOIN links l ON l.owner = o.id
    JOIN skills s ON s.id = l.source JOIN skills t ON t.id = l.target;

-- name: min_link_weight
SELECT s.skill_id, min(l.weight)
FROM json_each(:ids) w JOIN skills s ON s.skill_id = w.value JOIN links l ON l.owner = s.id
WHERE l.type = :type AND l.source = s.id GROUP BY s.id HAVING count(*) >= :count;

-- name: links_among
WITH asked AS (
    SELECT id, skill_id FROM skills WHERE skill_id IN (SELECT value FROM json_each(:ids)))
SELECT o.skill_id, s.skill_id, t.skill_id, l.type, l.weight, l.evidence
FROM asked s CROSS JOIN links l ON l.source = s.id
JOIN asked t ON t.id = l.target JOIN skills o ON o.id = l.owner
ORDER BY s.skill_id, t.skill_id, l.type, o.skill_id;

-- name: save_source
INSERT OR REPLACE INTO sources (
    source_id, kind, root, last_success, branch, path, licences, credential_file, poll_seconds,
    commit_id, last_attempt, last_error
) VALUES (
    :source_id, :kind, :root, :last_success, :branch, :path, :licences, :credential_file,
    :poll_seconds, :commit, :last_attempt, :last_error
)

-- name: sources
SELECT source_id, kind, root, last_success, branch, path, licences, credential_file, poll_seconds,
    commit_id, last_attempt, last_error
FROM sources ORDER BY source_id;

-- name: delete_source
DELETE FROM sources WHERE source_id = ?;

-- name: published_of_source
SELECT count(*) FROM skills WHERE source_id = ? AND seq > 0;

-- name: source_groups
SELECT source_id, groups FROM source_groups;

-- name: set_source_groups
INSERT OR REPLACE INTO source_groups VALUES (?, ?);

-- name: delete_source_groups
DELETE FROM source_groups WHERE source_id = ?;

-- name: file_signatures
SELECT path, signature FROM cursor WHERE source_id = ?;

-- name: save_file_signature
INSERT OR REPLACE INTO cursor VALUES (?, ?, ?);

-- name: forget_file_signature
DELETE FROM cursor WHERE source_id = ? AND path = ?;

-- name: delete_file_signatures
DELETE FROM cursor WHERE source_id = ?;
