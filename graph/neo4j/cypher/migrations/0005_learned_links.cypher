// Links from use, and links that a person dismissed, whose ends may be removed skills.
//
// (:Skill)-[:USED_TOGETHER {owner, weight, evidence}]->(:Skill)
// (:DismissedLink {source, target, type, reason, dismissed})
CREATE INDEX used_together_owner IF NOT EXISTS FOR ()-[r:USED_TOGETHER]-() ON (r.owner);
CREATE CONSTRAINT dismissed_link IF NOT EXISTS
FOR (d:DismissedLink) REQUIRE (d.source, d.target, d.type) IS UNIQUE;
