package permit

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// Session is whose layers are meant.
type Session struct {
	Row journal.Row
	// Changes counts the changes of its rules that somebody made beside it (default: none).
	Changes func() int64
	// Approver answers for persons; nil where nobody can be asked.
	Approver policy.Approver
	// Fresh are changes of the rules that its turn decided and has not recorded (default: none).
	Fresh func() []journal.RuleChange
}

// Layers are what a session adds to the server's policy: its agent version's settings, its rules,
// and what its workspace says. Safe for concurrent use.
type Layers struct {
	of *Policies
	s  Session

	// stale: something was recorded since rules and workspace were looked at.
	stale atomic.Bool

	mu sync.Mutex
	// made is the policy of everything below; nil when something has to be done anew.
	made    *policy.Engine
	version *policy.Engine
	// rules are the session's, as they were when that many changes were counted.
	rules   policy.Config
	changes int64
	space   Workspace
}

// Layers are those of a session.
func (p *Policies) Layers(s Session) *Layers {
	if s.Changes == nil {
		s.Changes = func() int64 { return 0 }
	}
	if s.Fresh == nil {
		s.Fresh = func() []journal.RuleChange { return nil }
	}
	l := &Layers{of: p, s: s}
	l.stale.Store(true)
	return l
}

// Recorded says that something was recorded: rules and workspace may be others now.
func (l *Layers) Recorded() { l.stale.Store(true) }

// Current is the policy of the last decision; nil before the first.
func (l *Layers) Current() *policy.Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// Policy is the server's policy with all layers. fault, if not empty, is why the workspace's
// settings cannot be read, told once for each reason; nothing is allowed then.
func (l *Layers) Policy(ctx context.Context) (p *policy.Engine, fault string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == nil {
		if l.space, err = l.of.from.Workspace(ctx, l.s.Row); err != nil {
			return nil, "", err
		}
		if l.version, err = l.of.Version(ctx, l.s.Row.AgentVersion); err != nil {
			return nil, "", err
		}
	}
	stale := l.stale.Swap(false)
	if changes := l.s.Changes() + 1; stale || changes != l.changes {
		rules, err := l.of.rules(ctx, l.s.Row, l.s.Fresh())
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
		if l.space.Look() {
			l.made, fault = nil, l.space.Layer().Refuse
		}
	}
	if l.made == nil {
		if l.made, err = l.make(); err != nil {
			return nil, "", err
		}
	}
	return l.made, fault, nil
}

func (l *Layers) make() (*policy.Engine, error) {
	p, err := l.version.With(l.rules)
	if err == nil {
		p, err = p.With(l.space.Layer())
	}
	if err != nil {
		return nil, err
	}
	return p.With(policy.Config{Approver: l.s.Approver})
}

// rules are those of a session and its workspace, with changes that are not recorded yet, as a
// layer.
func (p *Policies) rules(ctx context.Context, row journal.Row, fresh []journal.RuleChange) (policy.Config, error) {
	var cfg policy.Config
	list, err := p.Rules(ctx, row)
	if err != nil {
		return cfg, err
	}
	for _, r := range Applied(list, fresh) {
		rule, err := p.server.ParseRule(r.Rule)
		if err != nil {
			cfg.Refuse = "a permission rule of this " + string(r.Scope) + " cannot be read: " + err.Error()
			continue
		}
		cfg.Add(r.Behavior, rule)
	}
	return cfg, nil
}
