-- Statements that bring an older file up to the schema of the number in their name, in order.

-- name: 2
ALTER TABLE sources ADD COLUMN branch TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN path TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN licences TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sources ADD COLUMN credential_file TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN poll_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE sources ADD COLUMN commit_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN last_attempt REAL NOT NULL DEFAULT 0;
ALTER TABLE sources ADD COLUMN last_error TEXT NOT NULL DEFAULT '';
