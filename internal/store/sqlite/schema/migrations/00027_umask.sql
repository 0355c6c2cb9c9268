-- +goose Up

-- The umask of whoever lent the directory of a workspace: what sessions make in it gets no more permissions. 18 is 022.
ALTER TABLE workspaces ADD COLUMN umask INTEGER NOT NULL DEFAULT 18;

-- +goose Down
ALTER TABLE workspaces DROP COLUMN umask;
