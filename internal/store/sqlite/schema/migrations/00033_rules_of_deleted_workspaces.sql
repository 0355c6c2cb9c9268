-- +goose Up

-- Rules that answers and hooks added to workspaces which are deleted: they would hold in the next workspace of that name.
DELETE FROM rules WHERE key LIKE 'w-%' AND substr(key, 3) NOT IN (SELECT slug FROM workspaces);

-- +goose Down
-- Nothing: the rules are gone.
