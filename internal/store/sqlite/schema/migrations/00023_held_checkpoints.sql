-- +goose Up

-- held is 1 for a checkpoint that retention keeps: somebody holds it, or a fork or a rewind starts from it.
ALTER TABLE checkpoints ADD COLUMN held INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE checkpoints DROP COLUMN held;
