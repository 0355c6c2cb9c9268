package admin

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const (
	agentCols = `name, version, version_id, runtime, coalesce(nullif(own_description, ''), description),
		coalesce(nullif(own_model, ''), model), coalesce(nullif(own_mode, ''), mode), created_at, updated_at`
	versionCols = `agent, number, id, files, settings, created_at`
)

// Agents is the store of deployed agents. Safe for concurrent use.
type Agents struct {
	db *db.DB

	get, put, update, remove     *sql.Stmt
	putVersion, lastVersion      *sql.Stmt
	one, all                     *sql.Stmt
	versionByNumber, versionByID *sql.Stmt
	versions                     *sql.Stmt
}

// NewAgents makes the store in a database, and prepares its statements.
func NewAgents(s *db.Setup) *Agents {
	a := &Agents{db: s.DB()}
	s.Write(&a.get, `SELECT `+agentCols+`, deleted, own_description, own_model, own_mode FROM agents WHERE name = ?`)
	s.Write(&a.put, `INSERT INTO agents (name, version, version_id, runtime, description, model, mode, deleted, created_at, updated_at)
		VALUES (?,?,?,?,?,?,?,0,?,?) ON CONFLICT (name) DO UPDATE SET version = excluded.version,
		version_id = excluded.version_id, runtime = excluded.runtime, description = excluded.description,
		model = excluded.model, mode = excluded.mode, own_description = iif(deleted, '', own_description),
		own_model = iif(deleted, '', own_model), own_mode = iif(deleted, '', own_mode), deleted = 0,
		created_at = excluded.created_at, updated_at = excluded.updated_at`)
	s.Write(&a.remove, `UPDATE agents SET deleted = 1, updated_at = ? WHERE name = ?`)
	s.Write(&a.update, `UPDATE agents SET own_description = ?, own_model = ?, own_mode = ?, updated_at = ? WHERE name = ?`)
	s.Write(&a.putVersion, `INSERT INTO agent_versions (agent, number, id, files, settings, created_at) VALUES (?,?,?,?,?,?)`)
	s.Write(&a.lastVersion, `SELECT coalesce(max(number), 0) FROM agent_versions WHERE agent = ?`)
	s.Read(&a.one, `SELECT `+agentCols+` FROM agents WHERE name = ? AND deleted = 0`)
	s.Read(&a.all, `SELECT `+agentCols+` FROM agents WHERE deleted = 0 ORDER BY name`)
	s.Read(&a.versionByNumber, `SELECT `+versionCols+` FROM agent_versions WHERE agent = ? AND number = ?`)
	s.Read(&a.versionByID, `SELECT `+versionCols+` FROM agent_versions WHERE agent = ? AND id = ?
		ORDER BY number DESC LIMIT 1`)
	s.Read(&a.versions, `SELECT `+versionCols+` FROM agent_versions WHERE agent = ? ORDER BY number DESC`)
	return a
}

// scanAgent reads a row of agentCols, and further columns into more.
func scanAgent(sc db.Scanner, more ...any) (holdfast.Agent, error) {
	var a holdfast.Agent
	var created, updated int64
	err := sc.Scan(append([]any{&a.Name, &a.Version, &a.VersionID, &a.Runtime, &a.Description, &a.Model, &a.Mode, &created, &updated}, more...)...)
	a.CreatedAt, a.UpdatedAt = db.FromMS(created), db.FromMS(updated)
	return a, err
}

// scanVersion reads a row of versionCols.
func scanVersion(sc db.Scanner) (holdfast.AgentVersion, error) {
	var v holdfast.AgentVersion
	var files, settings string
	var created int64
	if err := sc.Scan(&v.Agent, &v.Number, &v.ID, &files, &settings, &created); err != nil {
		return v, err
	}
	v.CreatedAt = db.FromMS(created)
	if settings != "" {
		if err := json.Unmarshal([]byte(settings), &v.Settings); err != nil {
			return v, holdfast.Errorf(holdfast.KindInternal, "store.agent", "the stored settings of agent %s, version %d, cannot be decoded: %w", v.Agent, v.Number, err)
		}
	}
	if err := json.Unmarshal([]byte(files), &v.Files); err != nil {
		return v, holdfast.Errorf(holdfast.KindInternal, "store.agent", "the stored file list of agent %s, version %d, cannot be decoded: %w", v.Agent, v.Number, err)
	}
	return v, nil
}

// PutAgentVersion records a deployment as the agent's newest version and returns the agent. The
// version gets the next number, also if its content equals that of the version before
// (ASH-1) or the agent was deleted in between. Overrides set by UpdateAgent stay, unless the
// agent was deleted.
func (s *Agents) PutAgentVersion(ctx context.Context, v holdfast.AgentVersion) (holdfast.Agent, error) {
	if _, err := holdfast.Parse[holdfast.AgentName](string(v.Agent)); err != nil {
		return holdfast.Agent{}, err
	}
	if _, err := holdfast.Parse[holdfast.VersionID](string(v.ID)); err != nil {
		return holdfast.Agent{}, err
	}
	for _, f := range v.Files {
		if err := journal.CheckText("agent file", f.Path, f.SHA256); err != nil {
			return holdfast.Agent{}, err
		}
	}
	set := v.Settings
	if err := journal.CheckText("agent settings", set.Description, set.Runtime, set.Model, string(set.Mode)); err != nil {
		return holdfast.Agent{}, err
	}
	if v.Files == nil {
		v.Files = []holdfast.AgentFile{}
	}
	files, err := json.Marshal(v.Files)
	if err != nil {
		return holdfast.Agent{}, db.Failure("store.agent", err)
	}
	settings := ""
	if v.Settings != (holdfast.AgentSettings{}) {
		raw, err := json.Marshal(v.Settings)
		if err != nil {
			return holdfast.Agent{}, db.Failure("store.agent", err)
		}
		settings = string(raw)
	}
	var a holdfast.Agent
	plan := func(t *db.Tx) error {
		var deleted bool
		var own holdfast.AgentSettings
		old, err := scanAgent(s.get.QueryRowContext(t.Ctx, v.Agent), &deleted, &own.Description, &own.Model, &own.Mode)
		ok, err := db.Found(err)
		if err != nil {
			return err
		}
		a = holdfast.Agent{
			Name: v.Agent, VersionID: v.ID, Runtime: set.Runtime, Description: set.Description, Model: set.Model, Mode: set.Mode,
			CreatedAt: t.Now, UpdatedAt: t.Now,
		}
		if ok && !deleted {
			a.CreatedAt = old.CreatedAt
			a.Description, a.Model, a.Mode = cmp.Or(own.Description, set.Description), cmp.Or(own.Model, set.Model), cmp.Or(own.Mode, set.Mode)
		}
		if err := s.lastVersion.QueryRowContext(t.Ctx, v.Agent).Scan(&a.Version); err != nil {
			return err
		}
		a.Version++
		return nil
	}
	apply := func(t *db.Tx) error {
		t.Pages += 4 + len(files)/db.PageSize
		if _, err := s.putVersion.ExecContext(t.Ctx, v.Agent, a.Version, v.ID, string(files), settings, t.NowMS); err != nil {
			return err
		}
		_, err := s.put.ExecContext(t.Ctx, a.Name, a.Version, a.VersionID, a.Runtime, set.Description, set.Model, set.Mode,
			a.CreatedAt.UnixMilli(), t.NowMS)
		return err
	}
	if err := s.db.Do(ctx, "store.agent", &db.Op{Plan: plan, Apply: apply, Weight: len(files)}); err != nil {
		return holdfast.Agent{}, err
	}
	return a, nil
}

// Agent returns a deployed agent; not_found for an unknown or deleted one.
func (s *Agents) Agent(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	a, err := scanAgent(s.one.QueryRowContext(ctx, name))
	return a, db.RowError("store.agent", err, func() error { return noAgent(name) })
}

// Agents lists the deployed agents, ordered by name.
func (s *Agents) Agents(ctx context.Context) ([]holdfast.Agent, error) {
	rows, err := s.all.QueryContext(ctx)
	list, err := db.Collect("store.agents", rows, err, func(sc db.Scanner) (holdfast.Agent, error) { return scanAgent(sc) })
	if list == nil && err == nil {
		list = []holdfast.Agent{}
	}
	return list, err
}

// AgentVersion returns one version, by its number ("3") or by its id ("sha256:…"; the newest
// version with that content). It returns not_found for an unknown version. Versions of a
// deleted agent are still found, because sessions are pinned to them.
func (s *Agents) AgentVersion(ctx context.Context, name holdfast.AgentName, ref string) (holdfast.AgentVersion, error) {
	st, arg := s.versionByID, any(ref)
	if n, err := strconv.ParseInt(ref, 10, 64); err == nil {
		st, arg = s.versionByNumber, n
	}
	v, err := scanVersion(st.QueryRowContext(ctx, name, arg))
	return v, db.RowError("store.agent", err, func() error {
		return holdfast.Errorf(holdfast.KindNotFound, "store.agent",
			"there is no version %s of an agent %s", holdfast.Quote(ref), holdfast.Quote(string(name))).
			WithHint("holdfast agent show %s lists the versions", name)
	})
}

// AgentVersions lists an agent's versions, newest first; not_found for an unknown or deleted agent.
func (s *Agents) AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error) {
	if _, err := s.Agent(ctx, name); err != nil {
		return nil, err
	}
	rows, err := s.versions.QueryContext(ctx, name)
	return db.Collect("store.agent", rows, err, scanVersion)
}

// DeleteAgent marks an agent as deleted; not_found for an unknown or deleted one. Its versions
// stay for the sessions that are pinned to them.
func (s *Agents) DeleteAgent(ctx context.Context, name holdfast.AgentName) error {
	plan := func(t *db.Tx) error {
		_, err := s.toChange(t, name)
		return err
	}
	apply := func(t *db.Tx) error {
		_, err := s.remove.ExecContext(t.Ctx, t.NowMS, name)
		return err
	}
	return s.db.Do(ctx, "store.agent", &db.Op{Plan: plan, Apply: apply})
}

// toChange returns the overrides that UpdateAgent set on an agent; not_found for an unknown or
// deleted agent.
func (s *Agents) toChange(t *db.Tx, name holdfast.AgentName) (own holdfast.AgentSettings, err error) {
	var deleted bool
	_, err = scanAgent(s.get.QueryRowContext(t.Ctx, name), &deleted, &own.Description, &own.Model, &own.Mode)
	ok, err := db.Found(err)
	if err == nil && (!ok || deleted) {
		err = noAgent(name)
	}
	return own, err
}

// UpdateAgent sets values that override the settings of the agent's versions. An empty value removes the
// override, a nil one leaves it. UpdateAgent returns not_found for an unknown or deleted agent.
func (s *Agents) UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	for _, p := range []*string{req.Description, req.Model, req.Mode} {
		if p != nil {
			if err := journal.CheckText("agent", *p); err != nil {
				return holdfast.Agent{}, err
			}
		}
	}
	var own holdfast.AgentSettings
	plan := func(t *db.Tx) (err error) {
		if own, err = s.toChange(t, name); err != nil {
			return err
		}
		if req.Description != nil {
			own.Description = *req.Description
		}
		if req.Model != nil {
			own.Model = *req.Model
		}
		if req.Mode != nil {
			own.Mode = holdfast.Mode(*req.Mode)
		}
		return nil
	}
	apply := func(t *db.Tx) error {
		_, err := s.update.ExecContext(t.Ctx, own.Description, own.Model, own.Mode, t.NowMS, name)
		return err
	}
	if err := s.db.Do(ctx, "store.agent", &db.Op{Plan: plan, Apply: apply}); err != nil {
		return holdfast.Agent{}, err
	}
	return s.Agent(ctx, name)
}

func noAgent(name holdfast.AgentName) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store.agent", "there is no agent %s", holdfast.Quote(string(name))).
		WithHint("holdfast agent list shows all agents")
}
