-- +goose Up

-- What the box of a session may connect to, as a JSON list; null takes what the agent
-- or the server names.
ALTER TABLE sessions ADD COLUMN network TEXT;

-- The credential store. sealed is an envelope: a data key for each value, wrapped by
-- the root key that key_id names.
CREATE TABLE secrets (
  name       TEXT PRIMARY KEY,
  sealed     BLOB NOT NULL,
  key_id     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE secrets;
ALTER TABLE sessions DROP COLUMN network;
