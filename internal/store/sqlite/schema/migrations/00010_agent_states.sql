-- +goose Up

-- A session's references to agents that keep a conversation of their own. state is
-- JSON; at most one of a runtime is current.
CREATE TABLE agent_states (
  session    INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  runtime    TEXT NOT NULL,
  health     TEXT NOT NULL,
  state      BLOB NOT NULL,
  PRIMARY KEY (session, generation)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE agent_states;
