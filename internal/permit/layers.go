package engine

import (
	"context"
	"crypto/sha256"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
)

// layers are what a session adds to the server's policy: its agent version's
// settings, its rules, and what its workspace says.
type layers struct {
	e   *Engine
	row journal.Row
	u   *unit
	// approver answers for persons; nil where nobody can be asked.
	approver policy.Approver
	// fresh are changes of the rules that the turn decided and has not recorded.
	fresh func() []journal.RuleChange

	// stale: something was recorded since rules and workspace were looked at.
	stale atomic.Bool

	mu sync.Mutex
	// made is the policy of everything below; nil when something has to be done anew.
	made    *policy.Engine
	version *versioned
	// rules are the session's, as they were when the unit had counted that many.
	rules   policy.Config
	changes int64
	space   workspaceSettings
}

func newLayers(e *Engine, u *unit, row journal.Row) *layers {
	l := &layers{e: e, u: u, row: row, space: workspaceSettings{tools: e.cfg.Policy.Tools()}, fresh: func() []journal.RuleChange { return nil }}
	l.stale.Store(true)
	return l
}

// policy is the server's policy with all layers. fault, if not empty, is why the
// workspace's settings cannot be read, told once for each.
func (l *layers) policy(ctx context.Context) (p *policy.Engine, fault string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == nil {
		if l.version, err = l.e.versioned(ctx, l.row.AgentVersion); err != nil {
			return nil, "", err
		}
	}
	stale := l.stale.Swap(false)
	if changes := l.u.rules.Load() + 1; stale || changes != l.changes {
		rules, err := l.e.sessionRules(ctx, l.row, l.fresh())
		if err != nil {
			l.stale.Store(true)
			return nil, "", err
		}
		if !reflect.DeepEqual(rules, l.rules) {
			l.rules, l.made = rules, nil
		}
		l.changes = changes
	}
	if stale {
		changed := l.space.look(l.e.boxes.Scope(l.u.id).Workspace(), l.version.settings.Sums, l.u.id)
		if changed {
			l.made, fault = nil, l.space.layer.Refuse
		}
	}
	if l.made == nil {
		if l.made, err = l.make(); err != nil {
			return nil, "", err
		}
	}
	return l.made, fault, nil
}

func (l *layers) make() (*policy.Engine, error) {
	p, err := l.version.policy.With(l.rules)
	if err == nil {
		p, err = p.With(l.space.layer)
	}
	if err != nil {
		return nil, err
	}
	return p.With(policy.Config{Approver: l.approver})
}

// versioned is the server's policy with the layer of an agent version, and the
// version's hooks; nil without any.
type versioned struct {
	policy   *policy.Engine
	settings settings.Settings
	hooks    *hook.Registry
}

// maxVersions is how many agent versions' policies are kept.
const maxVersions = 64

// versions keeps the policies of agent versions, which never change.
type versions struct {
	mu   sync.Mutex
	kept map[holdfast.VersionID]*versioned
}

func (e *Engine) versioned(ctx context.Context, id holdfast.VersionID) (*versioned, error) {
	e.versions.mu.Lock()
	defer e.versions.mu.Unlock()
	if v := e.versions.kept[id]; v != nil {
		return v, nil
	}
	s, err := e.cfg.Agents.Settings(ctx, id)
	if err != nil {
		return nil, err
	}
	v := &versioned{policy: e.cfg.Policy, settings: s}
	if !s.Empty() {
		if v.policy, err = e.cfg.Policy.With(s.Layer()); err != nil {
			return nil, err
		}
	}
	if len(s.Hooks) > 0 {
		v.hooks = new(hook.Registry)
		if err := v.hooks.Load(s.Hooks, hook.InBox); err != nil {
			return nil, err
		}
	}
	if e.versions.kept == nil {
		e.versions.kept = map[holdfast.VersionID]*versioned{}
	}
	for old := range e.versions.kept {
		if len(e.versions.kept) < maxVersions {
			break
		}
		delete(e.versions.kept, old)
	}
	e.versions.kept[id] = v
	return v, nil
}

// sessionRules are the rules that answers, hooks and persons left for a session
// and its workspace, with changes that are not recorded yet.
func (e *Engine) sessionRules(ctx context.Context, row journal.Row, fresh []journal.RuleChange) (policy.Config, error) {
	var cfg policy.Config
	list, err := e.ruleRows(ctx, row)
	if err != nil {
		return cfg, err
	}
	for _, r := range applied(list, fresh) {
		rule, err := e.cfg.Policy.ParseRule(r.Rule)
		if err != nil {
			cfg.Refuse = "a permission rule of this " + string(r.Scope) + " cannot be read: " + err.Error()
			continue
		}
		cfg.Add(r.Behavior, rule)
	}
	return cfg, nil
}

// workspaceSettings are the settings that lie in a workspace, where the agent can
// write: they tighten, and where they cannot be read nothing is allowed. The zero
// value has looked at nothing.
type workspaceSettings struct {
	looked bool
	stamps [2]rooted.Stamp
	faults [2]string
	layer  policy.Config
	// tools are the tools that rules may name besides the standard ones.
	tools []policy.Tool
}

// look reads the files anew where they are not what they were, and reports whether
// the layer is another one. same are the sums of files that add nothing: those of
// the agent's version, which a new workspace is seeded with.
func (w *workspaceSettings) look(dir string, same map[string][sha256.Size]byte, id holdfast.SessionID) bool {
	var stamps [2]rooted.Stamp
	var faults [2]string
	for i, name := range settings.Files() {
		var err error
		if stamps[i], err = rooted.Stat(dir, name); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			faults[i] = err.Error()
		}
	}
	if w.looked && stamps == w.stamps && faults == w.faults {
		return false
	}
	before := w.layer.Refuse
	w.looked, w.stamps, w.faults = true, stamps, faults
	w.layer = w.read(dir, same)
	if w.layer.Refuse != "" {
		w.layer.Refuse += "; nothing is allowed until the user mends it: holdfast files put " + string(id) + " FILE, or cat and rm in place of put"
	}
	return w.layer.Refuse != before || w.layer.Refuse == ""
}

func (w *workspaceSettings) read(dir string, same map[string][sha256.Size]byte) policy.Config {
	files := map[string][]byte{}
	for i, name := range settings.Files() {
		if w.faults[i] != "" {
			return unreadable(w.faults[i])
		}
		if w.stamps[i] == (rooted.Stamp{}) {
			continue
		}
		data, st, err := rooted.ReadFile(dir, name, settings.MaxClaude)
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
			w.stamps[i] = rooted.Stamp{}
			continue
		case err != nil:
			return unreadable(err.Error())
		}
		w.stamps[i] = st
		if sum, ok := same[name]; !ok || sha256.Sum256(data) != sum {
			files[name] = data
		}
	}
	cfg, err := settings.Tightening(files, w.tools)
	if err != nil {
		return unreadable(err.Error())
	}
	return cfg
}

func unreadable(why string) policy.Config {
	return policy.Config{Refuse: "the workspace's settings cannot be read: " + strings.TrimPrefix(why, "agent settings: ")}
}
