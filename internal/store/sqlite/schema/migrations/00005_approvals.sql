-- +goose Up

-- number orders the list and is its cursor.
CREATE TABLE approvals (
  number      INTEGER PRIMARY KEY AUTOINCREMENT,
  id          TEXT NOT NULL UNIQUE,
  session     INTEGER NOT NULL,
  session_id  TEXT NOT NULL,
  turn        TEXT NOT NULL,
  tool_use    TEXT NOT NULL,
  tool        TEXT NOT NULL,
  input       BLOB NOT NULL,
  input_hash  TEXT NOT NULL,
  asked_by    TEXT NOT NULL,
  rule        TEXT NOT NULL,
  reason      TEXT NOT NULL,
  suggestion  TEXT NOT NULL,
  state       TEXT NOT NULL,
  asked_at    INTEGER NOT NULL,
  expires_at  INTEGER,
  answered_at INTEGER,
  answered_by TEXT NOT NULL,
  scope       TEXT NOT NULL,
  answer      TEXT NOT NULL
) STRICT;
CREATE INDEX approvals_call ON approvals (turn, tool_use);
CREATE INDEX approvals_session ON approvals (session, number);
CREATE INDEX approvals_pending ON approvals (number) WHERE state = 'pending';
CREATE INDEX approvals_expiry ON approvals (expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;

-- key is the id of the session, or the key of the workspace; that of a private
-- workspace is the id of its session.
CREATE TABLE rules (
  number   INTEGER PRIMARY KEY AUTOINCREMENT,
  scope    TEXT NOT NULL,
  key      TEXT NOT NULL,
  behavior TEXT NOT NULL,
  rule     TEXT NOT NULL,
  source   TEXT NOT NULL,
  at       INTEGER NOT NULL,
  UNIQUE (key, scope, behavior, rule)
) STRICT;

-- +goose Down
DROP TABLE rules;
DROP TABLE approvals;
