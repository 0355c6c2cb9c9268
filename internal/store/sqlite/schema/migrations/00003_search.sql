-- +goose Up

-- The words of titles and conversations. rowid is the id of the event, or
-- session number << 32 for the title; the text itself stays in events. Filled
-- behind the commits by a follower: search_seen is how far it has read.
CREATE VIRTUAL TABLE search USING fts5(
  text, content = '', contentless_delete = 1, tokenize = "unicode61 remove_diacritics 2"
);
CREATE TABLE search_seen (
  session INTEGER PRIMARY KEY,
  seq     INTEGER NOT NULL
) STRICT;

-- +goose Down
DROP TABLE search_seen;
DROP TABLE search;
