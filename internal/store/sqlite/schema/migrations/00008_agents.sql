-- +goose Up

-- description, model and mode are those of the newest version's settings; own_*
-- are those of an update, which win; empty for none.
ALTER TABLE agents ADD COLUMN description     TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN model           TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN mode            TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN own_description TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN own_model       TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN own_mode        TEXT NOT NULL DEFAULT '';

-- settings are a version's, as JSON; empty for none.
ALTER TABLE agent_versions ADD COLUMN settings TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE agent_versions DROP COLUMN settings;
ALTER TABLE agents DROP COLUMN own_mode;
ALTER TABLE agents DROP COLUMN own_model;
ALTER TABLE agents DROP COLUMN own_description;
ALTER TABLE agents DROP COLUMN mode;
ALTER TABLE agents DROP COLUMN model;
ALTER TABLE agents DROP COLUMN description;
