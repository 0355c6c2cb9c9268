-- +goose Up

-- An agent that names no runtime leaves it to the server; until now native stood for
-- that, and nothing else could be named.
UPDATE agents SET runtime = '' WHERE runtime = 'native';

-- +goose Down
UPDATE agents SET runtime = 'native' WHERE runtime = '';
