-- +goose Up

-- Trees of files in which several sessions work. dir is the path of a directory of the user's own, empty for a
-- tree of the server's; device and inode identify it, uid and gid own it. AUTOINCREMENT: host ids derive from a
-- number, which is never used again. deleting is 1 once its deletion has begun. The empty string stands for the server's default, a null network too.
CREATE TABLE workspaces (
  number        INTEGER PRIMARY KEY AUTOINCREMENT,
  slug          TEXT NOT NULL UNIQUE,
  title         TEXT NOT NULL,
  dir           TEXT NOT NULL,
  device        INTEGER NOT NULL,
  inode         INTEGER NOT NULL,
  uid           INTEGER NOT NULL,
  gid           INTEGER NOT NULL,
  default_trust TEXT NOT NULL,
  model         TEXT NOT NULL,
  runtime       TEXT NOT NULL,
  network       TEXT,
  deleting      INTEGER NOT NULL,
  revision      INTEGER NOT NULL,
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL
) STRICT;

-- The slug of the session's workspace; null for files of its own.
ALTER TABLE sessions ADD COLUMN workspace TEXT;
CREATE INDEX sessions_workspace ON sessions (workspace) WHERE workspace IS NOT NULL;

-- +goose Down
DROP INDEX sessions_workspace;
ALTER TABLE sessions DROP COLUMN workspace;
DROP TABLE workspaces;
