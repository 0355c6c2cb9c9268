-- +goose Up

-- source is where the session's first files come from, as JSON; NULL: nowhere.
ALTER TABLE sessions ADD COLUMN source TEXT;

-- +goose Down
ALTER TABLE sessions DROP COLUMN source;
