-- +goose Up

-- Deliveries to webhooks, one for each receiver of an event: written with the
-- event, gone when the receiver has taken it. hook is webhook.Hook.Name.
CREATE TABLE outbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  hook     TEXT NOT NULL,
  session  TEXT NOT NULL,
  seq      INTEGER NOT NULL,
  type     TEXT NOT NULL,
  turn     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  data     BLOB NOT NULL,
  attempts INTEGER NOT NULL,
  next_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_order ON outbox (hook, session, id);

-- +goose Down
DROP TABLE outbox;
