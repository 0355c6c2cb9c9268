-- +goose Up

-- purge_at is when a session in the trash is removed for good, in ms; NULL if it is not in the trash.
ALTER TABLE sessions ADD COLUMN purge_at INTEGER;

-- +goose Down
ALTER TABLE sessions DROP COLUMN purge_at;
