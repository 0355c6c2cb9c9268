-- +goose Up

-- box_uid is the first of the two host ids that the session's files belong to,
-- where its first box was a ready one; 0: they derive from the number.
ALTER TABLE sessions ADD COLUMN box_uid INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sessions DROP COLUMN box_uid;
