-- +goose Up

-- The places of checkpoints that were dropped, so that a turn after one does not pass for one that has the
-- files of the checkpoint before it. In a fork also event 1: the turns that it copied have none. session is the number of a session, seq the number of an event.
CREATE TABLE dropped_checkpoints (
  session INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE dropped_checkpoints;
