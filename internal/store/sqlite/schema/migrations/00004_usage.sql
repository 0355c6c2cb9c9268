-- +goose Up

-- spent is what the session's ended turns used up, budget what they may: JSON,
-- empty for nothing.
ALTER TABLE sessions ADD COLUMN spent  TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN budget TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sessions DROP COLUMN budget;
ALTER TABLE sessions DROP COLUMN spent;
