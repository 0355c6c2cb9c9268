-- +goose Up

-- held is 1 for a checkpoint that somebody holds: retention never drops it.
ALTER TABLE checkpoints ADD COLUMN held INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE checkpoints DROP COLUMN held;
