// Statements of the catalog by name. Lists of rows are sorted by skill_id, so that all writers lock
// in the same order and cannot deadlock. Setting and removing a property locks a node without
// changing it; values to compare are read after that. Every statement that writes to a skill begins
// in this way, because setting a property to a value computed from it takes two locks, in another
// order. `$$entry` is replaced by the columns of an entry, `$$has_scripts` by the expression for
// whether it has scripts, `$$parser` by that for the parser that made its revision, and
// `$$conditions` by the conditions of an `EntryFilter`. Statements that
// read a page return a row for each node up to the limit, even if the caller leaves the node out: a
// shorter page is the last page. In a small library the planner prefers a scan of an index to a seek
// in it, and that plan is kept (see `_PLANNING`): hints require the seek.

// name: allocate_sequence
MATCH (m:Meta {key: 'seq'}) SET m.value = m.value + $count RETURN m.value

// name: last_sequence
MATCH (m:Meta {key: 'seq'}) RETURN m.value

// name: next_epoch
MATCH (m:Meta {key: 'epoch'}) SET m.value = m.value + 1 RETURN m.value

// name: save_source
MERGE (s:Source {source_id: $known.source_id})
ON CREATE SET s.kind = $known.kind, s.root = $known.root
WITH s, s.kind = $known.kind AND s.root = $known.root AS same
FOREACH (_ IN CASE WHEN same THEN [1] ELSE [] END | SET s += $known)
RETURN s.kind, s.root

// name: source_access
CALL () {
    MATCH (s:Source)
    RETURN collect([s.source_id, s.kind, s.root, s.last_success, s.branch, s.path, s.licences,
        s.credential_file, s.poll_seconds, s.commit, s.last_attempt, s.last_error]) AS sources
}
CALL () {
    MATCH (g:SourceGroups) WHERE g.source_id IS NOT NULL AND g.groups IS NOT NULL
    RETURN collect([g.source_id, g.groups]) AS groups
}
RETURN sources, groups

// name: set_source_groups
MERGE (g:SourceGroups {source_id: $source_id}) SET g.groups = $groups
WITH g
MATCH (m:Meta {key: 'epoch'}) SET m.value = m.value + 1
WITH g, size($groups) = 0 AS empty
FOREACH (_ IN CASE WHEN empty THEN [g] ELSE [] END | DELETE g)

// name: delete_file_signatures
MATCH (c:Seen) USING INDEX SEEK c:Seen(source_id, path)
WHERE c.source_id = $source_id AND c.path IS NOT NULL
WITH c LIMIT $limit DELETE c RETURN count(*)

// name: delete_source
MATCH (s:Source {source_id: $source_id}) DELETE s

// name: file_signatures
MATCH (c:Seen) USING INDEX SEEK c:Seen(source_id, path)
WHERE c.source_id = $source_id AND c.path > $after
WITH c ORDER BY c.source_id, c.path LIMIT $limit
RETURN collect([c.path, c.signature])

// name: root_signature
MATCH (c:Seen {source_id: $source_id, path: ''}) RETURN c.signature

// name: forget_file_signatures
UNWIND $paths AS path MATCH (c:Seen {source_id: $source_id, path: path}) DELETE c

// name: save_file_signatures
UNWIND $rows AS row MERGE (c:Seen {source_id: $source_id, path: row[0]}) SET c.signature = row[1]

// name: request_ingest
UNWIND $rows AS row
MERGE (s:Skill {skill_id: row[0]})
ON CREATE SET s.source_id = row[1], s.path = row[2], s.state = 'pending', s.seq = 0,
    s.wanted_seq = 0, s.served_seq = 0
SET s.locked = true REMOVE s.locked
WITH s WHERE s.served_seq < $seq
SET s.wanted_seq = CASE WHEN s.wanted_seq > $seq THEN s.wanted_seq ELSE $seq END,
    s.state = CASE WHEN s.state = 'removed' THEN 'pending' ELSE s.state END
SET s.waiting = s.wanted_seq

// name: lock_or_add
UNWIND $rows AS row
MERGE (s:Skill {skill_id: row[0]})
ON CREATE SET s.source_id = row[1], s.path = row[2], s.state = 'pending', s.seq = 0,
    s.wanted_seq = 0, s.served_seq = 0
SET s.locked = true REMOVE s.locked
RETURN s.skill_id, s.seq, s.served_seq, s.name_key, s.waiting

// name: lock
UNWIND $ids AS id MATCH (s:Skill {skill_id: id})
SET s.locked = true REMOVE s.locked
RETURN s.skill_id, s.seq

// name: name_keys
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) WHERE s.name_key IS NOT NULL
RETURN s.skill_id, s.name_key

// name: publish
UNWIND $rows AS row MATCH (s:Skill {skill_id: row.skill_id})
SET s.judgements = CASE WHEN s.content_hash = row.shown.content_hash THEN s.judgements END
SET s += row.shown, s.state = 'published', s.seq = row.seq, s.served_seq = row.seq,
    s.wanted_seq = CASE WHEN s.wanted_seq > row.seq THEN s.wanted_seq ELSE row.seq END,
    s.without_vectors = CASE WHEN row.has_vectors THEN null ELSE -coalesce(s.uses, 0) END,
    s.paged = false, s.unpaged = -coalesce(s.uses, 0), s.pointer_epoch = $epoch,
    s.mark_epoch = $epoch
SET s.waiting = CASE WHEN s.wanted_seq > s.seq THEN s.wanted_seq END

// name: put_facts
UNWIND $rows AS row MERGE (f:Facts {skill_id: row.skill_id}) SET f += row.facts

// name: drop_mentions
UNWIND $ids AS id MATCH (m:Mention {skill_id: id}) DELETE m

// name: put_mentions
UNWIND $rows AS row CREATE (:Mention {key: row[0], source_id: row[1], skill_id: row[2]})

// name: withdraw
UNWIND $rows AS row MATCH (s:Skill {skill_id: row.skill_id})
SET s.pointer_epoch = CASE WHEN s.seq > 0 THEN $epoch ELSE s.pointer_epoch END
SET s += $blank, s.state = row.state, s.reason = row.reason, s.served_seq = row.seq,
    s.wanted_seq = CASE WHEN s.wanted_seq > row.seq THEN s.wanted_seq ELSE 0 END, s.seq = 0,
    s.updated = row.updated
SET s.waiting = CASE WHEN s.wanted_seq > 0 THEN s.wanted_seq END

// name: drop_facts
UNWIND $ids AS id MATCH (f:Facts {skill_id: id}) DELETE f

// name: prune
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = 'removed' AND s.skill_id IS NOT NULL AND s.waiting IS NULL AND s.updated < $before
WITH s ORDER BY s.state, s.skill_id LIMIT $limit
SET s.locked = true REMOVE s.locked
WITH s WHERE s.state = 'removed' AND s.waiting IS NULL AND NOT EXISTS { (s)--() }
WITH s, s.skill_id AS pruned DELETE s RETURN pruned

// name: mark_unchanged
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
WITH s, row WHERE s.seq > 0 AND s.served_seq < row[1]
    AND (row[2] IS NULL OR s.content_hash = row[2])
SET s.served_seq = row[1],
    s.wanted_seq = CASE WHEN s.wanted_seq > row[1] THEN s.wanted_seq ELSE s.seq END
SET s.waiting = CASE WHEN s.wanted_seq > row[1] THEN s.wanted_seq END

// name: entries
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) RETURN collect([$$entry])

// name: safety_records
UNWIND $ids AS id
MATCH (s:Skill {skill_id: id}) USING INDEX SEEK s:Skill(skill_id) WHERE s.state = 'published'
RETURN collect([s.skill_id, s.seq, coalesce(s.safety_level, 0), coalesce(s.licence, ''),
    coalesce(s.scanner, 0), coalesce(s.judgements, '')])

// name: all_entries
MATCH (s:Skill) USING INDEX SEEK s:Skill(skill_id) WHERE s.skill_id > $after
WITH s ORDER BY s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: entries_of_source
MATCH (s:Skill) USING INDEX SEEK s:Skill(source_id, path)
WHERE s.source_id = $source_id AND s.path > $after
WITH s ORDER BY s.source_id, s.path LIMIT $limit RETURN collect([$$entry])

// name: entry_at
MATCH (s:Skill {source_id: $source_id, path: $path}) RETURN collect([$$entry])

// name: entries_below
MATCH (s:Skill) USING INDEX SEEK s:Skill(source_id, path)
WHERE s.source_id = $source_id AND s.path STARTS WITH $below AND s.path > $after
WITH s ORDER BY s.source_id, s.path LIMIT $limit RETURN collect([$$entry])

// name: list_entries
MATCH (s:Skill) USING INDEX SEEK s:Skill(skill_id)
WHERE s.skill_id > $after AND s.skill_id < $end
    $$conditions
WITH s ORDER BY s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: list_entries_in_state
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = $state AND s.skill_id > $after AND s.skill_id < $end
    $$conditions
WITH s ORDER BY s.state, s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: list_entries_above_level
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = 'published' AND s.skill_id > $after AND s.skill_id < $end
    AND (coalesce(s.safety_level, 0) > $level OR s.judgements IS NOT NULL)
WITH s ORDER BY s.state, s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: list_judged_entries
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = 'published' AND s.skill_id > $after AND s.skill_id < $end
    AND s.judgements IS NOT NULL
WITH s ORDER BY s.state, s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: list_entries_of_rule
MATCH (f:FindingRule) USING INDEX SEEK f:FindingRule(rule, skill_id)
WHERE f.rule = $rule AND f.skill_id > $after AND f.skill_id < $end
MATCH (s:Skill {skill_id: f.skill_id}) USING INDEX SEEK s:Skill(skill_id)
WHERE s.seq = f.seq AND (coalesce(s.safety_level, 0) > $level OR s.judgements IS NOT NULL)
WITH s, f ORDER BY f.rule, f.skill_id LIMIT $limit RETURN collect([$$entry])

// name: list_entries_by_name
MATCH (s:Skill) USING INDEX SEEK s:Skill(name_key, source_id)
WHERE s.name_key = $name_key AND s.source_id IS NOT NULL
    AND s.skill_id > $after AND s.skill_id < $end AND ($state IS NULL OR s.state = $state)
    $$conditions
WITH s ORDER BY s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: count_entries
MATCH (s:Skill) WHERE s.skill_id IS NOT NULL
RETURN s.source_id, s.state, coalesce(s.language, ''), coalesce(s.licence, ''),
    coalesce(s.safety_level, 0), $$has_scripts, coalesce(s.paged, false), count(*)

// name: count_states_by_source
UNWIND $source_ids AS source_id UNWIND $states AS state
CALL (source_id, state) {
    MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
    WHERE s.state = state AND s.skill_id > source_id + ':' AND s.skill_id < source_id + ';'
    RETURN count(*) AS many
}
RETURN source_id, state, many

// name: awaiting_ingest
MATCH (s:Skill) WHERE s.waiting IS NOT NULL AND s.skill_id IS NOT NULL
WITH s ORDER BY s.waiting, s.skill_id LIMIT $limit RETURN collect([$$entry])

// name: awaiting_vectors
MATCH (s:Skill) WHERE s.without_vectors IS NOT NULL AND s.skill_id IS NOT NULL
WITH s ORDER BY s.without_vectors, s.skill_id LIMIT $limit
RETURN collect(s.skill_id), collect(s.seq)

// name: mark_vectors_stored
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
WITH s, row WHERE s.seq = row[1] AND s.seq > 0
REMOVE s.without_vectors

// name: awaiting_embedding
MATCH (s:Skill) WHERE s.unpaged IS NOT NULL AND s.skill_id IS NOT NULL
WITH s ORDER BY s.unpaged, s.skill_id LIMIT $limit
RETURN collect(s.skill_id), collect(s.seq)

// name: mark_embedded
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
WITH s, row WHERE s.seq = row[1] AND s.seq > 0
SET s.paged = true REMOVE s.unpaged

// name: parsed_before
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = 'published' AND s.skill_id IS NOT NULL AND $$parser < $parser
    AND s.waiting IS NULL
WITH s ORDER BY s.state, s.skill_id LIMIT $limit
RETURN collect(s.skill_id), collect(s.seq)

// name: count_parsed_before
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = 'published' AND s.skill_id IS NOT NULL AND $$parser < $parser
RETURN count(*)

// name: mark_parsed
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
WITH s, row WHERE s.seq = row[1] AND s.seq > 0 AND $$parser < $parser
SET s.parser = $parser, s.parsed_seq = row[1]

// name: scanned_before
MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
WHERE s.state = 'published' AND s.skill_id IS NOT NULL
    AND (coalesce(s.scanner, 0) < $scanner
        OR (s.scanner = $scanner AND $$has_scripts IS NULL))
WITH s ORDER BY s.state, s.skill_id LIMIT $limit
RETURN collect(s.skill_id), collect(s.seq)

// name: save_scans
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
WITH s, row WHERE s.seq = row[1] AND s.seq > 0
    AND (coalesce(s.scanner, 0) < $scanner
        OR (s.scanner = $scanner AND $$has_scripts IS NULL))
SET s.safety_level = row[2], s.scanner = $scanner, s.has_scripts = row[3], s.scanned_seq = row[1]
RETURN s.skill_id

// name: drop_finding_rules
UNWIND $ids AS id MATCH (f:FindingRule {skill_id: id}) DELETE f

// name: put_finding_rules
UNWIND $rows AS row CREATE (:FindingRule {rule: row[0], skill_id: row[1], seq: row[2]})

// name: rules_version
MATCH (m:Meta {key: 'rules_version'}) RETURN m.value

// name: set_rules_version
MATCH (m:Meta {key: 'rules_version'}) SET m.value = $scanner

// name: save_judgements
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]}) SET s.judgements = row[1]

// name: judgements
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) WHERE s.seq > 0
RETURN s.skill_id, s.content_hash, coalesce(s.judgements, '')

// name: increment_uses
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
SET s.uses = coalesce(s.uses, 0) + row[1]
SET s.unpaged = CASE WHEN s.unpaged IS NOT NULL THEN -s.uses END,
    s.without_vectors = CASE WHEN s.without_vectors IS NOT NULL THEN -s.uses END

// name: count_states
UNWIND $states AS state
CALL (state) {
    MATCH (s:Skill) USING INDEX SEEK s:Skill(state, skill_id)
    WHERE s.state = state AND s.skill_id IS NOT NULL RETURN count(*) AS many
}
RETURN state, many

// name: count_rest
CALL () {
    MATCH (s:Skill) WHERE s.without_vectors IS NOT NULL AND s.skill_id IS NOT NULL
    RETURN count(*) AS without_vectors
}
CALL () {
    MATCH (s:Skill) WHERE s.unpaged IS NOT NULL AND s.skill_id IS NOT NULL
    RETURN count(*) AS unpaged
}
CALL () {
    MATCH (s:Skill) WHERE s.mark_epoch IS NOT NULL AND s.skill_id IS NOT NULL
    RETURN count(*) AS unlinked
}
CALL () {
    MATCH (s:Skill) WHERE s.waiting IS NOT NULL AND s.skill_id IS NOT NULL
    RETURN count(*) AS waiting
}
CALL () { MATCH ()-[r:DEPENDENCY]->() RETURN count(r) AS dependencies }
CALL () { MATCH ()-[r:WORKFLOW]->() RETURN count(r) AS workflows }
CALL () { MATCH ()-[r:SEMANTIC]->() RETURN count(r) AS semantics }
CALL () { MATCH ()-[r:ALTERNATIVE]->() RETURN count(r) AS alternatives }
CALL () { MATCH ()-[r:CONFLICT]->() RETURN count(r) AS conflicts }
CALL () { MATCH ()-[r:USED_TOGETHER]->() RETURN count(r) AS used_together }
RETURN without_vectors, unpaged, unlinked, waiting,
    dependencies + workflows + semantics + alternatives + conflicts + used_together

// name: epoch
OPTIONAL MATCH (m:Meta {key: 'epoch'}) RETURN coalesce(m.value, 0)

// name: epoch_with_lock
MATCH (m:Meta {key: 'epoch'}) SET m.locked = true REMOVE m.locked RETURN m.value

// name: all_changes
MATCH (s:Skill) USING INDEX SEEK s:Skill(skill_id) WHERE s.skill_id > $after
WITH s ORDER BY s.skill_id LIMIT $limit
RETURN collect([s.skill_id, s.seq, s.pointer_epoch > 0, s.row_epoch > 0])

// name: changed_pointers
MATCH (s:Skill) USING INDEX SEEK s:Skill(pointer_epoch) WHERE s.pointer_epoch > $epoch
RETURN collect(s.skill_id), collect(s.seq)

// name: changed_rows
MATCH (s:Skill) USING INDEX SEEK s:Skill(row_epoch) WHERE s.row_epoch > $epoch
RETURN collect(s.skill_id)
