package permit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pending"
	"github.com/holdfast-run/holdfast/policy"
)

// noticeUpdate is the code of the notice that a permission update was refused.
const noticeUpdate = "permissions.refused"

// By identifies the part of the server that asks for a permission update.
type By string

// The values of By: a hook, or the policy itself.
const (
	ByHook   By = "hook"
	ByPolicy By = "policy"
)

// Update is one permission update with the part that asks for it.
type Update struct {
	policy.Update
	By By
}

// UpdatesOf returns a list of policy updates, each marked with the part that asks for them.
func UpdatesOf(by By, list []policy.Update) []Update {
	out := make([]Update, len(list))
	for i, u := range list {
		out[i] = Update{u, by}
	}
	return out
}

// Updates are the permission updates of one turn, and the session's current permission mode. An
// update is effective as soon as Take returns; it is recorded when the fact that Take returns is
// committed. Safe for concurrent use.
type Updates struct {
	of   *Policies
	row  journal.Row
	turn holdfast.TurnID

	// changes counts the calls that made updates effective or dropped them.
	changes atomic.Int64
	mode    atomic.Pointer[holdfast.Mode]
	mu      sync.Mutex
	open    []*taken
}

// taken holds permission updates that are effective but not recorded yet.
type taken struct {
	fact    *pending.Fact
	rules   []journal.RuleChange
	by      By
	mode    *holdfast.Mode
	was     holdfast.Mode
	refused []string
}

// Updates returns the Updates of a turn.
func (p *Policies) Updates(row journal.Row, turn holdfast.TurnID) *Updates {
	u := &Updates{of: p, row: row, turn: turn}
	u.mode.Store(&row.Mode)
	return u
}

// Mode returns the current permission mode.
func (u *Updates) Mode() holdfast.Mode { return *u.mode.Load() }

// SetMode sets the mode that a request chose for the session and that is already recorded.
func (u *Updates) SetMode(m holdfast.Mode) { u.mode.Store(&m) }

// count returns how many times updates became effective or were dropped; 0 if u is nil.
func (u *Updates) count() int64 {
	if u == nil {
		return 0
	}
	return u.changes.Load()
}

// unrecorded returns the rule changes that are effective but not recorded yet; none if u is nil.
func (u *Updates) unrecorded() []journal.RuleChange {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []journal.RuleChange
	for _, t := range u.open {
		out = append(out, t.rules...)
	}
	return out
}

// Drop undoes the updates that are not recorded, because their calls are decided again, and removes
// their facts from the pending ones.
func (u *Updates) Drop(from *pending.Facts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.open) == 0 {
		return
	}
	for _, t := range slices.Backward(u.open) {
		if t.mode != nil {
			u.mode.CompareAndSwap(t.mode, &t.was)
		}
		from.Drop(t.fact)
	}
	u.open = nil
	u.changes.Add(1)
}

// Take makes permission updates effective and returns the fact that records them, or nil for no
// updates. An update that is refused is recorded as a notice; the verdict stays the same.
func (u *Updates) Take(ctx context.Context, updates []Update) (*pending.Fact, error) {
	if len(updates) == 0 {
		return nil, nil
	}
	list, err := u.of.stored(ctx, u.row)
	if err != nil {
		return nil, err
	}
	mode := u.Mode()
	t := &taken{by: updates[0].By, was: mode}
	list = Applied(list, u.unrecorded())
	for _, up := range updates {
		changes, err := u.plan(list, up)
		switch {
		case err != nil:
			t.refused = append(t.refused, journal.Plain(err.Error()))
		case up.Type == policy.SetMode:
			mode = up.Mode
		default:
			t.rules, list = append(t.rules, changes...), Applied(list, changes)
		}
	}
	if mode != t.was {
		t.mode = &mode
	}
	t.fact = &pending.Fact{After: func(c *journal.Change) { u.add(t, c) }, Recorded: func() { u.recorded(t) }}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = append(u.open, t)
	if t.mode != nil {
		u.mode.Store(t.mode)
	}
	u.changes.Add(1)
	return t.fact, nil
}

// recorded removes t from the updates that are not recorded yet, because a commit has recorded it.
func (u *Updates) recorded(t *taken) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = slices.DeleteFunc(u.open, func(o *taken) bool { return o == t })
}

// add appends the updates and their events to a change of the session.
func (u *Updates) add(t *taken, c *journal.Change) {
	if len(t.rules) > 0 {
		c.ChangeRules(u.turn, string(t.by), t.rules)
	}
	if t.mode != nil && u.mode.Load() == t.mode {
		// Record the mode only if it was not changed again after this update.
		c.Patch().Mode = t.mode
		var ev holdfast.SessionUpdated
		ev.Mode = t.mode
		ev.From.Mode = &t.was
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventSessionUpdated, Turn: u.turn, Data: ev})
	}
	for _, why := range t.refused {
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventNotice, Turn: u.turn, Data: holdfast.Notice{Code: noticeUpdate, Text: why}})
	}
}

// plan checks an update and returns the rule changes that it makes to a list of rules.
func (u *Updates) plan(list []journal.Rule, up Update) ([]journal.RuleChange, error) {
	refuse := func(why string) error {
		return holdfast.Errorf(holdfast.KindDenied, "permission update", "the permission update %s to %s, requested by the %s, is refused: %s", up.Type, up.Destination, up.By, why)
	}
	// Apply fails with invalid, naming the field, if the update is malformed.
	if _, err := (policy.Permissions{Tools: u.of.server.Tools()}).Apply(up.Update); err != nil {
		return nil, err
	}
	var scope holdfast.ApprovalScope
	switch up.Destination {
	case policy.ToSession, policy.ToCLI:
		scope = holdfast.ScopeSession
	case policy.ToProject, policy.ToLocal:
		scope = holdfast.ScopeWorkspace
	default:
		return nil, refuse("only the server's owner may change the server's settings")
	}
	switch up.Type {
	case policy.AddDirectories, policy.RemoveDirectories:
		return nil, refuse("a session works only in its own workspace, so no directory can be added or removed")
	case policy.SetMode:
		if up.By == ByHook && up.Mode != holdfast.ModePlan && up.Mode != holdfast.ModeDontAsk {
			return nil, refuse("a hook may only make the mode stricter, that is plan or dontAsk")
		}
		return nil, nil
	}
	if up.By == ByHook && up.Behavior == "deny" && up.Type != policy.AddRules {
		return nil, refuse("a hook may not remove a deny rule")
	}
	key := Key(u.row, scope)
	change := func(rule string, removed bool) journal.RuleChange {
		return journal.RuleChange{Key: key, Source: string(up.By), RuleChange: holdfast.RuleChange{Scope: scope, Behavior: up.Behavior, Rule: rule, Removed: removed}}
	}
	var out []journal.RuleChange
	if up.Type == policy.ReplaceRules {
		for _, r := range list {
			if r.Scope == scope && r.Behavior == up.Behavior {
				out = append(out, change(r.Rule, true))
			}
		}
	}
	for _, s := range up.Rules {
		rule, err := u.of.server.ParseRule(s)
		if err != nil {
			return nil, err
		}
		out = append(out, change(rule.String(), up.Type == policy.RemoveRules))
	}
	for _, r := range list {
		if r.Tightens() && cmp.Or(r.Trust, holdfast.Untrusted).Exceeds(u.row.Trust) &&
			len(Applied([]journal.Rule{r}, out)) == 0 {
			return nil, refuse("a session that is " + string(u.row.Trust) + " may not remove a rule that was added in one that is " + string(r.Trust))
		}
	}
	if len(Applied(list, out)) > 2*MaxRules {
		return nil, refuse("the session and its workspace would have too many rules")
	}
	return out, nil
}
