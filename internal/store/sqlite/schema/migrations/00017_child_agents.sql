-- +goose Up

-- agent is the child agent that an event belongs to; empty for the session's own agent.
ALTER TABLE events ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN agent TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE outbox DROP COLUMN agent;
ALTER TABLE events DROP COLUMN agent;
