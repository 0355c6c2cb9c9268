-- +goose Up

-- One row: the fencing token of the newest server. Each batch of writes compares
-- it within its own transaction.
CREATE TABLE server (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  epoch INTEGER NOT NULL
) STRICT;
INSERT INTO server (id, epoch) VALUES (1, 0);

-- AUTOINCREMENT: a number is never used again, uids of boxes derive from it.
-- title_fold is the title in lower case, for searching beyond ASCII.
CREATE TABLE sessions (
  number          INTEGER PRIMARY KEY AUTOINCREMENT,
  id              TEXT NOT NULL UNIQUE,
  status          TEXT NOT NULL,
  agent           TEXT NOT NULL,
  agent_version   TEXT NOT NULL,
  trust           TEXT NOT NULL,
  runtime         TEXT NOT NULL,
  model           TEXT NOT NULL,
  mode            TEXT NOT NULL,
  title           TEXT NOT NULL,
  title_fold      TEXT NOT NULL,
  tags            TEXT NOT NULL,
  env             TEXT NOT NULL,
  sealed_env      BLOB,
  error           TEXT NOT NULL,
  revision        INTEGER NOT NULL,
  completed_turns INTEGER NOT NULL,
  last_turn       INTEGER NOT NULL,
  files_seeded    INTEGER NOT NULL,
  had_files       INTEGER NOT NULL,
  create_key      TEXT,
  created_at      INTEGER NOT NULL,
  last_active_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_status ON sessions (status);
CREATE INDEX sessions_agent ON sessions (agent);

-- id is session number << 32 | sequence number: one b-tree in log order, so an
-- append touches one page and a replay reads neighbours. The newest number of a
-- session is the largest id in its range; it is stored nowhere else.
CREATE TABLE events (
  id   INTEGER PRIMARY KEY,
  type TEXT NOT NULL,
  turn TEXT NOT NULL,
  at   INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;

CREATE TABLE turns (
  session     INTEGER NOT NULL,
  number      INTEGER NOT NULL,
  id          TEXT NOT NULL,
  status      TEXT NOT NULL,
  message_seq INTEGER NOT NULL,
  end_seq     INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  started_at  INTEGER,
  ended_at    INTEGER,
  PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX turns_id ON turns (id);
CREATE INDEX turns_open ON turns (session, number) WHERE status IN ('queued', 'running');

CREATE TABLE idempotency (
  scope TEXT NOT NULL,
  value TEXT NOT NULL,
  hash  TEXT NOT NULL,
  ref   TEXT NOT NULL,
  at    INTEGER NOT NULL,
  PRIMARY KEY (scope, value)
) STRICT, WITHOUT ROWID;

-- Sessions that are deleted while their events still go, in small batches.
CREATE TABLE purge (
  session INTEGER PRIMARY KEY
) STRICT;

-- deleted agents keep their versions: sessions are pinned to them.
CREATE TABLE agents (
  name       TEXT PRIMARY KEY,
  version    INTEGER NOT NULL,
  version_id TEXT NOT NULL,
  runtime    TEXT NOT NULL,
  deleted    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_versions (
  agent      TEXT NOT NULL,
  number     INTEGER NOT NULL,
  id         TEXT NOT NULL,
  files      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (agent, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_versions_id ON agent_versions (agent, id);

-- +goose Down
DROP TABLE agent_versions;
DROP TABLE agents;
DROP TABLE purge;
DROP TABLE idempotency;
DROP TABLE turns;
DROP TABLE events;
DROP TABLE sessions;
DROP TABLE server;
