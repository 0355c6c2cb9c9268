-- +goose Up

-- The audit chain (docs/format/audit.md): body is what is hashed, byte for byte,
-- and holds the number and the hash of the record before. It outlives sessions.
CREATE TABLE audit (
  n    INTEGER PRIMARY KEY,
  hash BLOB NOT NULL,
  body BLOB NOT NULL
) STRICT;
CREATE TABLE audit_heads (
  n         INTEGER PRIMARY KEY,
  hash      BLOB NOT NULL,
  at        INTEGER NOT NULL,
  signature BLOB NOT NULL
) STRICT;

-- +goose Down
DROP TABLE audit_heads;
DROP TABLE audit;
