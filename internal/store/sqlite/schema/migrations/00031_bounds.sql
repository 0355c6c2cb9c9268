-- +goose Up

-- What binds a fork of a session in a workspace, as JSON: network, limits and rules; null for nothing.
ALTER TABLE sessions ADD COLUMN bounds TEXT;

-- +goose Down
ALTER TABLE sessions DROP COLUMN bounds;
