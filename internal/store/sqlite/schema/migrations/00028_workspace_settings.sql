-- +goose Up

-- limits are those of the boxes of a workspace, by their keys, and permissions its permission rules: lists by allow,
-- ask and deny. Both are JSON; null for none.
ALTER TABLE workspaces ADD COLUMN limits TEXT;
ALTER TABLE workspaces ADD COLUMN permissions TEXT;

-- The names of the environment that new sessions get, as the keys of a JSON object, and their values, encrypted; null for none.
ALTER TABLE workspaces ADD COLUMN env TEXT;
ALTER TABLE workspaces ADD COLUMN sealed_env BLOB;

-- +goose Down
ALTER TABLE workspaces DROP COLUMN sealed_env;
ALTER TABLE workspaces DROP COLUMN env;
ALTER TABLE workspaces DROP COLUMN permissions;
ALTER TABLE workspaces DROP COLUMN limits;
