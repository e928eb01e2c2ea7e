// Rules of findings, and whether a skill has scripts.
//
// (:FindingRule {rule, skill_id, seq})  a rule by which this revision has findings
// (:Skill)   scanned_seq: the revision that has_scripts and the rules are of. Of another one they are
//            not known: a version without them published it, and the reconciler fills them in.
// (:Meta {key: 'rules_version'})  the scanner version by which all rules are known, 0 if some are not
CREATE CONSTRAINT finding_rule IF NOT EXISTS
FOR (f:FindingRule) REQUIRE (f.rule, f.skill_id) IS UNIQUE;
CREATE INDEX finding_rule_skill IF NOT EXISTS FOR (f:FindingRule) ON (f.skill_id);
MERGE (m:Meta {key: 'rules_version'}) SET m.value = 0;
