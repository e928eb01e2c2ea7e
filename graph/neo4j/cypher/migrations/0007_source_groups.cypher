// Groups of sources, which are kept apart from them: a source that is not there can have some.
//
// (:SourceGroups {source_id, groups})
CREATE CONSTRAINT source_groups IF NOT EXISTS
FOR (g:SourceGroups) REQUIRE g.source_id IS UNIQUE;
