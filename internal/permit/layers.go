package permit

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// Session configures the layers of one session.
type Session struct {
	Row journal.Row
	// Approver asks a person about a call; nil if nobody can be asked.
	Approver policy.Approver
	// Updates are the permission updates of the session's turn; nil without a turn. The rules include its
	// changes that are not recorded yet.
	Updates *Updates
}

// Layers adds a session's layers to the server's policy: the settings of its agent version, its
// rules, and the settings in its workspace. Safe for concurrent use.
type Layers struct {
	of *Policies
	s  Session

	// stale is true if the rules and the settings in the workspace must be read again.
	stale atomic.Bool

	mu sync.Mutex
	// made is the policy with all layers; nil after a layer changed.
	made *policy.Engine
	// version is the policy with the layer of the agent version; nil before the first use.
	version *policy.Engine
	// rules are the session's rules as they were last read; settings are only those that the workspace's
	// settings contain. changes is the number of rule changes, by Sources and Updates, before that read.
	rules, settings policy.Config
	changes         int64
	space           Workspace
}

// Layers returns the layers of a session.
func (p *Policies) Layers(s Session) *Layers {
	l := &Layers{of: p, s: s}
	l.stale.Store(true)
	return l
}

// Recorded marks the rules and the workspace as possibly changed, because the session's log has
// grown: the next call of Policy reads them again.
func (l *Layers) Recorded() { l.stale.Store(true) }

// Current returns the policy that the last call of Policy made; nil before the first call and after
// a change.
func (l *Layers) Current() *policy.Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// Policy returns the server's policy with all layers. If the settings in the workspace cannot be
// read, that policy denies everything, and the first call that notices returns the reason as fault.
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
	// Count the changes before reading the rules: a change in between makes the next call read them again.
	if changes := l.of.from.Changes() + l.s.Updates.count(); stale || changes != l.changes {
		rules, settings, err := l.of.rules(ctx, l.s.Row, l.s.Updates.unrecorded())
		if err != nil {
			l.stale.Store(true)
			return nil, "", err
		}
		if !reflect.DeepEqual(rules, l.rules) {
			l.rules, l.settings, l.made = rules, settings, nil
		}
		l.changes = changes
	}
	if stale {
		changed, err := l.space.Look(ctx)
		if err != nil {
			l.stale.Store(true)
			return nil, "", err
		}
		if changed {
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
	if err == nil && l.s.Row.Workspace != "" {
		var owners *policy.Engine
		if owners, err = l.version.With(l.settings); err == nil {
			p, err = p.With(gitOfHost(owners, l.space, l.s.Row.Trust))
		}
	}
	if err == nil {
		p, err = p.With(l.space.Layer())
	}
	if err != nil {
		return nil, err
	}
	return p.With(policy.Config{Approver: l.s.Approver})
}

// rules returns the rules of a session and its workspace as a policy layer, including changes that are not recorded
// yet. settings has only the rules in the workspace's settings, which no answer, hook or agent can change.
func (p *Policies) rules(ctx context.Context, row journal.Row, fresh []journal.RuleChange) (cfg, settings policy.Config, err error) {
	list, err := p.Rules(ctx, row)
	if err != nil {
		return cfg, settings, err
	}
	for _, r := range Applied(list, fresh) {
		rule, err := p.server.ParseRule(r.Rule)
		if err != nil {
			cfg.Refuse = "a permission rule of this " + string(r.Scope) + " cannot be read: " + err.Error()
			continue
		}
		cfg.Add(r.Behavior, rule)
		if r.Scope == journal.SettingsScope {
			settings.Add(r.Behavior, rule)
		}
	}
	return cfg, settings, nil
}
