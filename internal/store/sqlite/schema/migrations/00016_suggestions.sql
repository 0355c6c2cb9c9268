-- +goose Up

-- suggestions is a JSON array of rules; a question had one or none before.
ALTER TABLE approvals RENAME COLUMN suggestion TO suggestions;
UPDATE approvals SET suggestions = CASE suggestions WHEN '' THEN '[]' ELSE json_array(suggestions) END;

-- +goose Down
UPDATE approvals SET suggestions = coalesce(json_extract(suggestions, '$[0]'), '');
ALTER TABLE approvals RENAME COLUMN suggestions TO suggestion;
