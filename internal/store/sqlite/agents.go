package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const (
	agentCols = `name, version, version_id, runtime, coalesce(nullif(own_description, ''), description),
		coalesce(nullif(own_model, ''), model), coalesce(nullif(own_mode, ''), mode), created_at, updated_at`
	versionCols = `agent, number, id, files, settings, created_at`
)

func scanAgent(sc scanner, more ...any) (holdfast.Agent, error) {
	var a holdfast.Agent
	var created, updated int64
	err := sc.Scan(append([]any{&a.Name, &a.Version, &a.VersionID, &a.Runtime, &a.Description, &a.Model, &a.Mode, &created, &updated}, more...)...)
	a.CreatedAt, a.UpdatedAt = fromMS(created), fromMS(updated)
	return a, err
}

func scanVersion(sc scanner) (holdfast.AgentVersion, error) {
	var v holdfast.AgentVersion
	var files, settings string
	var created int64
	if err := sc.Scan(&v.Agent, &v.Number, &v.ID, &files, &settings, &created); err != nil {
		return v, err
	}
	v.CreatedAt = fromMS(created)
	if settings != "" {
		if err := json.Unmarshal([]byte(settings), &v.Settings); err != nil {
			return v, holdfast.Errorf(holdfast.KindInternal, "store.agent", "settings of %s %d: %w", v.Agent, v.Number, err)
		}
	}
	if err := json.Unmarshal([]byte(files), &v.Files); err != nil {
		return v, holdfast.Errorf(holdfast.KindInternal, "store.agent", "files of %s %d: %w", v.Agent, v.Number, err)
	}
	return v, nil
}

// PutAgentVersion records a deployment as the agent's newest version and returns
// the agent. The number is the store's: one more than the last, also when the
// content is the same (ASH-1) and when the agent was deleted in between. What
// UpdateAgent set stays, unless the agent was deleted.
func (s *Store) PutAgentVersion(ctx context.Context, v holdfast.AgentVersion) (holdfast.Agent, error) {
	if _, err := holdfast.ParseAgentName(string(v.Agent)); err != nil {
		return holdfast.Agent{}, err
	}
	if _, err := holdfast.ParseVersionID(string(v.ID)); err != nil {
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
		return holdfast.Agent{}, failure("store.agent", err)
	}
	settings := ""
	if v.Settings != (holdfast.AgentSettings{}) {
		raw, err := json.Marshal(v.Settings)
		if err != nil {
			return holdfast.Agent{}, failure("store.agent", err)
		}
		settings = string(raw)
	}
	var a holdfast.Agent
	plan := func(t *tx) error {
		var deleted bool
		var own holdfast.AgentSettings
		old, err := scanAgent(t.s.w.admin.agents.get.QueryRowContext(t.ctx, v.Agent), &deleted, &own.Description, &own.Model, &own.Mode)
		ok, err := found(err)
		if err != nil {
			return err
		}
		a = holdfast.Agent{
			Name: v.Agent, VersionID: v.ID, Runtime: set.Runtime, Description: set.Description, Model: set.Model, Mode: set.Mode,
			CreatedAt: t.now, UpdatedAt: t.now,
		}
		if ok && !deleted {
			a.CreatedAt = old.CreatedAt
			a.Description, a.Model, a.Mode = cmp.Or(own.Description, set.Description), cmp.Or(own.Model, set.Model), cmp.Or(own.Mode, set.Mode)
		}
		if err := t.s.w.admin.agents.lastVersion.QueryRowContext(t.ctx, v.Agent).Scan(&a.Version); err != nil {
			return err
		}
		a.Version++
		return nil
	}
	apply := func(t *tx) error {
		t.pages += 4 + len(files)/pageSize
		if _, err := t.s.w.admin.agents.putVersion.ExecContext(t.ctx, v.Agent, a.Version, v.ID, string(files), settings, t.nowMS); err != nil {
			return err
		}
		_, err := t.s.w.admin.agents.put.ExecContext(t.ctx, a.Name, a.Version, a.VersionID, a.Runtime, set.Description, set.Model, set.Mode,
			a.CreatedAt.UnixMilli(), t.nowMS)
		return err
	}
	if err := s.do(ctx, "store.agent", &op{plan: plan, apply: apply, weight: len(files)}); err != nil {
		return holdfast.Agent{}, err
	}
	return a, nil
}

// Agent is a deployed agent; not_found for an unknown or deleted one.
func (s *Store) Agent(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	a, err := scanAgent(s.r.agent.QueryRowContext(ctx, name))
	ok, err := found(err)
	if err != nil {
		return holdfast.Agent{}, failure("store.agent", err)
	}
	if !ok {
		return holdfast.Agent{}, noAgent(name)
	}
	return a, nil
}

// Agents lists the deployed agents by name.
func (s *Store) Agents(ctx context.Context) ([]holdfast.Agent, error) {
	rows, err := s.r.agents.QueryContext(ctx)
	if err != nil {
		return nil, failure("store.agents", err)
	}
	defer rows.Close()
	out := []holdfast.Agent{}
	for rows.Next() {
		a, err := scanAgent(rows)
		if err != nil {
			return nil, failure("store.agents", err)
		}
		out = append(out, a)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.agents", err)
	}
	return out, nil
}

// AgentVersion is one version, by its number ("3") or by its id ("sha256:…"; the
// newest deployment of that content); not_found for none. Versions of a deleted
// agent are still found: sessions are pinned to them.
func (s *Store) AgentVersion(ctx context.Context, name holdfast.AgentName, ref string) (holdfast.AgentVersion, error) {
	st, arg := s.r.versionByID, any(ref)
	if n, err := strconv.ParseInt(ref, 10, 64); err == nil {
		st, arg = s.r.versionByNumber, n
	}
	v, err := scanVersion(st.QueryRowContext(ctx, name, arg))
	ok, err := found(err)
	if err != nil {
		return holdfast.AgentVersion{}, failure("store.agent", err)
	}
	if !ok {
		return holdfast.AgentVersion{}, holdfast.Errorf(holdfast.KindNotFound, "store.agent",
			"agent %s has no version %s", holdfast.Quote(string(name)), holdfast.Quote(ref)).
			WithHint("holdfast agent show %s lists the versions", name)
	}
	return v, nil
}

// AgentVersions lists an agent's versions, newest first; not_found as Agent.
func (s *Store) AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error) {
	if _, err := s.Agent(ctx, name); err != nil {
		return nil, err
	}
	rows, err := s.r.versions.QueryContext(ctx, name)
	if err != nil {
		return nil, failure("store.agent", err)
	}
	defer rows.Close()
	var out []holdfast.AgentVersion
	for rows.Next() {
		v, err := scanVersion(rows)
		if err != nil {
			return nil, failure("store.agent", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.agent", err)
	}
	return out, nil
}

// DeleteAgent takes an agent out of the list; not_found as Agent. Its versions
// stay for the sessions that are pinned to them.
func (s *Store) DeleteAgent(ctx context.Context, name holdfast.AgentName) error {
	plan := func(t *tx) error {
		_, err := agentToChange(t, name)
		return err
	}
	apply := func(t *tx) error {
		_, err := t.s.w.admin.agents.delete.ExecContext(t.ctx, t.nowMS, name)
		return err
	}
	return s.do(ctx, "store.agent", &op{plan: plan, apply: apply})
}

// agentToChange is what UpdateAgent set of an agent; not_found as Agent.
func agentToChange(t *tx, name holdfast.AgentName) (own holdfast.AgentSettings, err error) {
	var deleted bool
	_, err = scanAgent(t.s.w.admin.agents.get.QueryRowContext(t.ctx, name), &deleted, &own.Description, &own.Model, &own.Mode)
	ok, err := found(err)
	if err == nil && (!ok || deleted) {
		err = noAgent(name)
	}
	return own, err
}

// UpdateAgent sets what wins over the settings of the agent's versions; an empty
// value gives those back their say. Not_found as Agent.
func (s *Store) UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	for _, p := range []*string{req.Description, req.Model, req.Mode} {
		if p != nil {
			if err := journal.CheckText("agent", *p); err != nil {
				return holdfast.Agent{}, err
			}
		}
	}
	var own holdfast.AgentSettings
	plan := func(t *tx) (err error) {
		if own, err = agentToChange(t, name); err != nil {
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
	apply := func(t *tx) error {
		_, err := t.s.w.admin.agents.update.ExecContext(t.ctx, own.Description, own.Model, own.Mode, t.nowMS, name)
		return err
	}
	if err := s.do(ctx, "store.agent", &op{plan: plan, apply: apply}); err != nil {
		return holdfast.Agent{}, err
	}
	return s.Agent(ctx, name)
}

func noAgent(name holdfast.AgentName) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store.agent", "there is no agent %s", holdfast.Quote(string(name))).
		WithHint("holdfast agent list shows them")
}
