-- +goose Up

-- sum is the CRC-32C of an event's row; -1 for a row from before there were any.
ALTER TABLE events ADD COLUMN sum INTEGER NOT NULL DEFAULT -1;

-- +goose Down
ALTER TABLE events DROP COLUMN sum;
