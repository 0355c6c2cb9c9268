package engine

import (
	"context"
	"iter"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/hooked"
	"github.com/holdfast-run/holdfast/internal/hostgit"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/lease"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// sessions implements place.Sessions and hooked.Sessions.
type sessions struct{ p *parts }

var _ place.Sessions = sessions{}

// Row implements place.Sessions and hooked.Sessions.
func (s sessions) Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	return s.p.row(ctx, id)
}

// Live implements place.Sessions.
func (s sessions) Live(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	return s.p.liveRow(ctx, id)
}

// Seeded implements place.Sessions.
func (s sessions) Seeded(ctx context.Context, id holdfast.SessionID, set journal.RowPatch, events ...journal.Draft) error {
	c := journal.NewChange(id)
	c.Set, c.Events = &set, events
	_, err := s.p.cfg.Journal.Commit(ctx, c)
	return err
}

// Files implements place.Sessions.
func (s sessions) Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error) {
	return s.p.cfg.Agents.Files(ctx, version)
}

// Plugin implements place.Sessions. It returns "" for the native runtime, which reads the files in the server.
func (s sessions) Plugin(ctx context.Context, row journal.Row) (string, error) {
	if row.Runtime == permit.InServer {
		return "", nil
	}
	return s.p.cfg.Agents.Plugin(ctx, row.AgentVersion)
}

// Prepare implements place.Sessions.
func (s sessions) Prepare(row journal.Row) (func(context.Context, *sandbox.Box) error, error) {
	env, err := s.p.choices.Env(row)
	return func(ctx context.Context, box *sandbox.Box) error { return s.p.connect(ctx, row, box, env) }, err
}

// Open implements place.Sessions.
func (s sessions) Open(ctx context.Context, id holdfast.SessionID) (bool, error) {
	if h := s.p.units.host(id); h != nil && h.lease.Away() {
		return false, nil
	}
	open, err := s.p.cfg.Stores.Sessions.OpenTurns(ctx, id)
	return len(open) > 0, err
}

// Log implements place.Sessions.
func (s sessions) Log(ctx context.Context, id holdfast.SessionID) iter.Seq2[holdfast.Event, error] {
	return s.p.cfg.Journal.Read(ctx, id, 0)
}

// Agents implements place.Sessions.
func (s sessions) Agents(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	return s.p.cfg.Stores.Sessions.AgentStates(ctx, id)
}

// Hooks implements place.Sessions.
func (s sessions) Hooks(id holdfast.SessionID) func(holdfast.CallID) bool {
	turn := s.p.units.turnOf(id)
	return func(call holdfast.CallID) bool { return hooked.RunOf(call, turn) }
}

// Where implements hooked.Sessions.
func (s sessions) Where(ctx context.Context, row journal.Row) (cwd, transcript string) {
	cwd, home := s.p.boxes.Scope(row.ID).Place(row.Trust)
	transcript, err := s.p.runtimes.Transcript(row.Runtime, runtime.Place{Workspace: cwd, Home: home}, func() ([]holdfast.AgentState, error) {
		return s.p.cfg.Stores.Sessions.AgentStates(ctx, row.ID)
	})
	if err != nil {
		// The hook runs without the transcript's path rather than not at all.
		s.p.cfg.Log.WarnContext(ctx, "hooks run without the path of the agent's transcript", "session_id", row.ID, "error", err)
	}
	return cwd, transcript
}

// Claim implements hooked.Sessions. While a turn of the session holds the box, the path rules of the box stay unchanged.
func (s sessions) Claim(ctx context.Context, id holdfast.SessionID, live bool) (*pool.Hold, error) {
	u := s.p.units.claim(id)
	defer s.p.units.disclaim(u)
	var rules rulesOf
	if h := s.p.units.host(id); h != nil {
		rules = h.lease.InForce()
	}
	hold, err := s.p.acquire(ctx, u, place.Claim{Live: live}, rules)
	if err != nil {
		return nil, err
	}
	return lease.Intact(hold, id, true)
}

// layered implements permit.Sources: it loads the policy layers of sessions.
type layered struct{ p *parts }

// Rules implements permit.Sources.
func (l layered) Rules(ctx context.Context, key string) ([]journal.Rule, error) {
	return l.p.cfg.Stores.Rules.Rules(ctx, key)
}

// Changes implements permit.Sources.
func (l layered) Changes() int64 { return l.p.cfg.Stores.Rules.Changes() }

// Layer implements permit.Sources.
func (l layered) Layer(ctx context.Context, version holdfast.VersionID) (policy.Config, error) {
	s, err := l.p.cfg.Agents.Settings(ctx, version)
	return s.Layer(), err
}

// Workspace implements permit.Sources.
func (l layered) Workspace(ctx context.Context, row journal.Row) (permit.Workspace, error) {
	s, err := l.p.cfg.Agents.Settings(ctx, row.AgentVersion)
	if err != nil {
		return nil, err
	}
	out := &settings.Workspace{Tree: l.p.boxes.Workspace(row.ID), Session: row.ID, Same: s.Sums, Tools: l.p.cfg.Policy.Tools()}
	if sc := l.p.boxes.Scope(row.ID); sc.Borrowed {
		out.Git = &hostgit.Reader{Dir: sc.Workspace()}
	}
	return out, nil
}

// BoxEvent records a box's start, stop or loss in the log of each session that may use the box, or if there is none, of
// each session that ever could. The pools call it as their OnEvent.
func (e *Engine) BoxEvent(ev pool.Event) {
	ctx := context.WithoutCancel(e.p.life.Base)
	ids, err := e.p.boxes.Hear(ctx, ev.Box)
	if err != nil {
		e.p.cfg.Log.Warn("a box's event could not be recorded in its session's log", "box_id", ev.Box, "type", ev.Type, "error", err)
	}
	for _, id := range ids {
		e.p.cfg.Journal.Note(ctx, e.p.cfg.Log, id, journal.Draft{Type: ev.Type, Data: ev.Data()})
		switch ev.Type {
		case holdfast.EventBoxStarted:
			e.p.hooks.Tell(id, hook.Input{Event: hook.SandboxStarted, Trigger: ev.Started.Driver})
		case holdfast.EventBoxStopped, holdfast.EventBoxLost:
			e.p.cfg.Snapshots.Stopped(id)
			e.p.hooks.Tell(id, hook.Input{Event: hook.SandboxStopped, Trigger: string(ev.Type), Message: ev.Ended.Reason})
		}
	}
}
