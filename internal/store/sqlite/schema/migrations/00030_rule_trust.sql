-- +goose Up

-- trust is the highest trust of a session that added the rule. Rules from before count as added by an untrusted one.
ALTER TABLE rules ADD COLUMN trust TEXT NOT NULL DEFAULT 'untrusted';

-- +goose Down
ALTER TABLE rules DROP COLUMN trust;
