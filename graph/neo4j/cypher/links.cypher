// Statements about links by name. `$$links` is replaced by all types of links between skills,
// `$$owned` by a subquery for the links that the skill `id` owns, `$$type` by one type. A link that
// is deleted while a statement runs may still be found, with nulls: the statement leaves it out if
// that is cheap, otherwise the code that reads the rows does.
// Many rows are returned as one list, since a list is faster to receive than many records.

// name: awaiting_linking
MATCH (s:Skill) WHERE s.mark_epoch IS NOT NULL AND s.skill_id IS NOT NULL
WITH s ORDER BY s.mark_epoch, s.skill_id LIMIT $limit
RETURN collect(s.skill_id), collect(s.mark_epoch)

// name: link_features
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) MATCH (f:Facts {skill_id: id})
RETURN collect(
    [s.skill_id, s.source_id, s.path, s.name, f.signature, f.description_terms, f.mentions])

// name: find_by_name
UNWIND $keys AS key MATCH (s:Skill {source_id: $source_id, name_key: key})
RETURN key, s.skill_id ORDER BY key, s.skill_id

// name: find_mentioning
UNWIND $names AS name MATCH (m:Mention {key: name[0], source_id: name[1]})
RETURN m.skill_id AS skill_id
UNION
UNWIND $keys AS key MATCH (m:Mention) USING INDEX SEEK m:Mention(key, source_id)
WHERE m.key = key AND m.source_id IS NOT NULL
RETURN m.skill_id AS skill_id

// name: mark_for_linking
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) WHERE s.seq > 0 SET s.mark_epoch = $epoch

// name: input_version
OPTIONAL MATCH (m:Meta {key: $key}) RETURN coalesce(m.text, '')

// name: set_input_version
MERGE (m:Meta {key: $key}) SET m.text = $version

// name: dismissed_links
MATCH (d:DismissedLink) WHERE d.source IS NOT NULL AND d.reason IS NOT NULL
RETURN d.source, d.target, d.type, d.reason, d.dismissed ORDER BY d.source, d.target, d.type

// name: dismiss_link
MERGE (d:DismissedLink {source: $source, target: $target, type: $type})
SET d.reason = $reason, d.dismissed = $dismissed

// name: restore_link
MATCH (d:DismissedLink {source: $source, target: $target, type: $type})
DELETE d RETURN count(*)

// name: clear_marks
UNWIND $rows AS row MATCH (s:Skill {skill_id: row[0]})
SET s.locked = true REMOVE s.locked
WITH s, row WHERE s.mark_epoch = row[1] REMOVE s.mark_epoch

// name: set_row_epochs
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) SET s.row_epoch = $epoch

// name: adjacency
UNWIND $ids AS id MATCH (s:Skill {skill_id: id})
CALL (s) {
    MATCH (s)-[r:$$links]-(o:Skill)
    WITH type(r) AS kind, startNode(r) = s AS forward, r.weight AS weight, o.skill_id AS other
    WHERE weight IS NOT NULL
    ORDER BY kind <> 'CONFLICT', weight DESC, kind, forward DESC, other
    RETURN collect([other, kind, forward, weight]) AS ends
}
CALL (ends) {
    UNWIND ends AS end
    WITH end[1] AS kind, end[2] AS forward, sum(end[3]) AS total
    RETURN collect([kind, forward, total]) AS totals
}
RETURN id, ends[..$fan_out], totals

// name: links
UNWIND $ids AS id MATCH (s:Skill {skill_id: id})
CALL (s) {
    MATCH (s)-[r:$$links]-() RETURN r
    UNION
    WITH s.skill_id AS id $$owned RETURN r
}
WITH id, r, r.owner AS owner, r.weight AS weight, r.evidence AS evidence
WHERE evidence IS NOT NULL
RETURN id,
    collect([owner, startNode(r).skill_id, endNode(r).skill_id, type(r), weight, evidence])

// name: links_among
UNWIND $ids AS id
MATCH (a:Skill {skill_id: id})-[r:$$links]->(b:Skill) USING INDEX SEEK a:Skill(skill_id)
WHERE b.skill_id IN $ids
WITH a, b, r, r.owner AS owner, r.weight AS weight, r.evidence AS evidence
WHERE evidence IS NOT NULL
RETURN collect([owner, a.skill_id, b.skill_id, type(r), weight, evidence])

// name: published
UNWIND $ids AS id MATCH (s:Skill {skill_id: id}) WHERE s.seq > 0 RETURN collect(id)

// name: owned
UNWIND $ids AS id $$owned
WITH id, r, r.weight AS weight, r.evidence AS evidence WHERE evidence IS NOT NULL
RETURN id, collect([startNode(r).skill_id, endNode(r).skill_id, type(r), weight, evidence])

// name: min_link_weight
UNWIND $ids AS id MATCH (s)-[r:$$type {owner: id}]->() WHERE s.skill_id = id
WITH id, count(r) AS many, min(r.weight) AS lightest WHERE many >= $count
RETURN id, lightest

// name: linked_skills
UNWIND $ids AS id MATCH (s:Skill {skill_id: id})
CALL (s) {
    MATCH (s)-[r:$$links]-() RETURN r
    UNION
    WITH s.skill_id AS id $$owned RETURN r
}
UNWIND [r.owner, startNode(r).skill_id, endNode(r).skill_id] AS other
WITH DISTINCT other WHERE other IS NOT NULL
RETURN other

// name: link_owners
UNWIND $ids AS id
MATCH (s:Skill {skill_id: id})-[r:$$links]-() USING INDEX SEEK s:Skill(skill_id)
RETURN DISTINCT r.owner

// name: delete_links_of
UNWIND $ids AS id MATCH (s:Skill {skill_id: id})
CALL (s) {
    MATCH (s)-[r:$$links]-() RETURN r
    UNION
    WITH s.skill_id AS id $$owned RETURN r
}
WITH DISTINCT r, startNode(r).skill_id AS source, endNode(r).skill_id AS target
DELETE r
RETURN source, target

// name: delete_links
UNWIND $rows AS row
MATCH (a:Skill {skill_id: row.source})-[r:$$links]->(b:Skill {skill_id: row.target})
USING INDEX SEEK a:Skill(skill_id)
WHERE type(r) = row.type AND r.owner = row.owner
DELETE r

// name: add_links
UNWIND $rows AS row
MATCH (a:Skill {skill_id: row.source}) MATCH (b:Skill {skill_id: row.target})
CREATE (a)-[r:$(row.type)]->(b)
SET r.owner = row.owner, r.weight = row.weight, r.evidence = row.evidence
