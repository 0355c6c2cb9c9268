-- +goose Up

-- Checkpoints and packs get their numbers from the row server, as commits do: a number is never used again, and storing a
-- checkpoint need not write the table sqlite_sequence. The tables are made anew without AUTOINCREMENT.
UPDATE server SET commits = MAX(commits, (SELECT COALESCE(MAX(number), 0) FROM packs), (SELECT COALESCE(MAX(number), 0) FROM checkpoints),
  (SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence));

CREATE TABLE packs_new (
  number INTEGER PRIMARY KEY,
  id     BLOB NOT NULL UNIQUE,
  bytes  INTEGER NOT NULL,
  unused INTEGER
) STRICT;
INSERT INTO packs_new SELECT number, id, bytes, unused FROM packs;
DROP TABLE packs;
ALTER TABLE packs_new RENAME TO packs;

CREATE TABLE checkpoints_new (
  number      INTEGER PRIMARY KEY,
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
  created_at  INTEGER NOT NULL,
  held        INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO checkpoints_new SELECT number, id, session, scope, seq, turn, turn_number, reason, workspace, home, files, bytes, fuzzy,
  abandoned, packs, created_at, held FROM checkpoints;
DROP TABLE checkpoints;
ALTER TABLE checkpoints_new RENAME TO checkpoints;
CREATE INDEX checkpoints_session ON checkpoints (session, seq);
CREATE INDEX checkpoints_scope ON checkpoints (scope);

-- +goose Down
-- Nothing: the tables have the columns that they had.
