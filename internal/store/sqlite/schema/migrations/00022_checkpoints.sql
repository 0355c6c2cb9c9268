-- +goose Up

-- The files of the snapshot store. AUTOINCREMENT: a number is never used again. unused is the time
-- since which no checkpoint lists the pack.
CREATE TABLE packs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id     BLOB NOT NULL UNIQUE,
  bytes  INTEGER NOT NULL,
  unused INTEGER
) STRICT;

-- Checkpoints in the order in which they were stored; a number is never used again. session is the
-- number of a session, turn the id of its newest turn; workspace and home are the ids of trees, empty
-- for none. packs are the numbers of the packs that hold the trees, ascending: each as a varint of its
-- distance from the one before.
CREATE TABLE checkpoints (
  number      INTEGER PRIMARY KEY AUTOINCREMENT,
  id          TEXT NOT NULL UNIQUE,
  session     INTEGER NOT NULL,
  scope       TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  turn        TEXT NOT NULL,
  turn_number INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  workspace   BLOB NOT NULL,
  home        BLOB NOT NULL,
  files       INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  fuzzy       INTEGER NOT NULL,
  abandoned   INTEGER NOT NULL,
  packs       BLOB NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX checkpoints_session ON checkpoints (session, seq);
CREATE INDEX checkpoints_scope ON checkpoints (scope);

-- Scopes whose files are being replaced by those of a checkpoint.
CREATE TABLE restores (
  scope      TEXT PRIMARY KEY,
  session    INTEGER NOT NULL,
  checkpoint TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE restores;
DROP TABLE checkpoints;
DROP TABLE packs;
