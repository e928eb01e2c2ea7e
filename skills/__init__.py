"""The domain: skill records, parsing, roles, scanner, passages, bundles, events. No I/O."""
