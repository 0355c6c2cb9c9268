-- +goose Up

-- Each start of a server writes an audit chain of its own. place is the number of the chain << 40 |
-- the number in it; the records from before are those of chain 0.
ALTER TABLE audit RENAME COLUMN n TO place;
ALTER TABLE audit_heads RENAME COLUMN n TO place;

-- +goose Down
ALTER TABLE audit_heads RENAME COLUMN place TO n;
ALTER TABLE audit RENAME COLUMN place TO n;
