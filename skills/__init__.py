"""The domain: records, parsing, roles, paging, bundles, events, safety. Pure; no I/O."""
