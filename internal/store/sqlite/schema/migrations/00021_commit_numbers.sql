-- +goose Up

-- commits is an upper bound of the numbers given to commits; they rise over all sessions and are
-- never used again. Events from before have the number 0.
ALTER TABLE server ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN commit_number INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE events DROP COLUMN commit_number;
ALTER TABLE server DROP COLUMN commits;
