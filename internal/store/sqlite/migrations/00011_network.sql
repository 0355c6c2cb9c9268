-- +goose Up

-- What the box of a session may connect to, as a JSON list; null takes what the agent
-- or the server names.
ALTER TABLE sessions ADD COLUMN network TEXT;

-- +goose Down
ALTER TABLE sessions DROP COLUMN network;
