-- +goose Up

-- hash is the SHA-256 of a key's secret; the secret itself is nowhere.
CREATE TABLE keys (
  id           TEXT PRIMARY KEY,
  hash         BLOB NOT NULL,
  name         TEXT NOT NULL,
  scopes       TEXT NOT NULL,
  max_trust    TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  last_used_at INTEGER,
  revoked_at   INTEGER
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE keys;
