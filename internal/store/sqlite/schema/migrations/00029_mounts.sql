-- +goose Up

-- mount is 'tree-ro' if boxes have the server's tree, read-only; the empty string stands for the workspace alone.
ALTER TABLE workspaces ADD COLUMN mount TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN mount TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sessions DROP COLUMN mount;
ALTER TABLE workspaces DROP COLUMN mount;
