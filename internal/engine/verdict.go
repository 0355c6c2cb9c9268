package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/policy"
)

// noticeUpdate tells that a change of the permissions was not made.
const noticeUpdate = "permissions.refused"

// brought is what a decision brings with it: it is recorded together with the
// verdict, and in force from the decision on.
type brought struct {
	use     string
	rules   []journal.RuleChange
	by      string
	mode    *holdfast.Mode
	was     holdfast.Mode
	refused []string
}

// verdicts are decisions with something to bring, until they are recorded. The
// zero value is ready.
type verdicts struct {
	mu   sync.Mutex
	open []*brought
}

// forget drops what was decided and not recorded: it is decided again.
func (h *host) forget() {
	v := &h.verdicts
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.open) == 0 {
		return
	}
	for _, b := range slices.Backward(v.open) {
		if b.mode != nil {
			h.mode.CompareAndSwap(b.mode, &b.was)
		}
	}
	v.open = nil
	h.u.rules.Add(1)
}

// carried are several that are recorded at once.
type carried []*brought

// of are those whose verdict is among the drafts, or the run of the hook that
// brought them.
func (v *verdicts) of(drafts []journal.Draft) carried {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out carried
	for _, b := range v.open {
		if slices.ContainsFunc(drafts, func(d journal.Draft) bool {
			if ran, ok := d.Data.(holdfast.HookRan); ok {
				return hookUse(ran.Call) == b.use
			}
			t, ok := d.Data.(holdfast.ToolDecision)
			return ok && t.ToolUseID == b.use && (d.Type == holdfast.EventToolAllowed || d.Type == holdfast.EventToolDenied)
		}) {
			out = append(out, b)
		}
	}
	return out
}

// recorded forgets what is in the store now.
func (v *verdicts) recorded(done carried) {
	if len(done) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = slices.DeleteFunc(v.open, func(b *brought) bool { return slices.Contains(done, b) })
}

// add puts them behind the events of a change.
func (bs carried) add(c *journal.Change, h *host) {
	turn := h.r.id
	for _, b := range bs {
		if len(b.rules) > 0 {
			c.Rules = append(c.Rules, b.rules...)
			ev := holdfast.RulesChanged{By: b.by}
			for _, r := range b.rules {
				ev.Changes = append(ev.Changes, r.RuleChange)
			}
			c.Events = append(c.Events, journal.Draft{Type: holdfast.EventRulesChanged, Turn: turn, Data: ev})
		}
		if b.mode != nil && h.mode.Load() == b.mode {
			// Nobody chose another one since.
			c.Set = &journal.RowPatch{Mode: b.mode}
			var ev holdfast.SessionUpdated
			ev.Mode = b.mode
			ev.From.Mode = &b.was
			c.Events = append(c.Events, journal.Draft{Type: holdfast.EventSessionUpdated, Turn: turn, Data: ev})
		}
		for _, why := range b.refused {
			c.Events = append(c.Events, journal.Draft{Type: holdfast.EventNotice, Turn: turn, Data: holdfast.Notice{Code: noticeUpdate, Text: why}})
		}
	}
}

// unrecorded are the changes of rules that decisions of this turn made and that
// are not recorded yet.
func (h *host) unrecorded() []journal.RuleChange {
	h.verdicts.mu.Lock()
	defer h.verdicts.mu.Unlock()
	var out []journal.RuleChange
	for _, b := range h.verdicts.open {
		out = append(out, b.rules...)
	}
	return out
}

// update is one change of the permissions, and who wants it.
type update struct {
	policy.Update
	by string
}

// bring takes in what a decision wants changed from here on. A change that is not
// made is told in the log; it does not change the verdict.
func (h *host) bring(ctx context.Context, use string, updates []update) error {
	if len(updates) == 0 {
		return nil
	}
	list, err := h.e.agents.policies.Rules(ctx, h.row)
	if err != nil {
		return err
	}
	b := &brought{use: use, by: updates[0].by}
	mode := *h.mode.Load()
	b.was = mode
	list = permit.Applied(list, h.unrecorded())
	for _, u := range updates {
		changes, err := h.planRules(list, u)
		switch {
		case err != nil:
			b.refused = append(b.refused, plainText(err.Error()))
		case u.Type == policy.SetMode:
			mode = u.Mode
		default:
			b.rules, list = append(b.rules, changes...), permit.Applied(list, changes)
		}
	}
	if mode != b.was {
		b.mode = &mode
	}
	h.verdicts.mu.Lock()
	defer h.verdicts.mu.Unlock()
	h.verdicts.open = append(h.verdicts.open, b)
	if b.mode != nil {
		h.mode.Store(b.mode)
	}
	h.u.rules.Add(1)
	return nil
}

// decided does what a decision wants beyond its verdict: changes of the
// permissions, and with an interrupt the end of the turn, which comes after the
// record of the denial.
func (h *host) decided(ctx context.Context, use string, updates []update, d policy.Decision) error {
	if err := h.bring(ctx, use, updates); err != nil {
		return err
	}
	if d.Verdict != policy.Allowed && d.Interrupt {
		h.r.cancel(&interrupted{reason: plainText("the turn was ended with a denial by " + d.By + ": " + d.Reason)})
	}
	return nil
}

// planRules checks an update and says what it changes of a list of rules.
func (h *host) planRules(list []journal.Rule, u update) ([]journal.RuleChange, error) {
	refuse := func(why string) error {
		return holdfast.Errorf(holdfast.KindDenied, "permission update", "%s to %s by %s is not made: %s", u.Type, u.Destination, u.by, why)
	}
	// What makes no sense is invalid, and names the field.
	if _, err := (policy.Permissions{Tools: h.e.cfg.Policy.Tools()}).Apply(u.Update); err != nil {
		return nil, err
	}
	var scope holdfast.ApprovalScope
	switch u.Destination {
	case policy.ToSession, policy.ToCLI:
		scope = holdfast.ScopeSession
	case policy.ToProject, policy.ToLocal:
		scope = holdfast.ScopeWorkspace
	default:
		return nil, refuse("the server's own settings are changed by its owner only")
	}
	switch u.Type {
	case policy.AddDirectories, policy.RemoveDirectories:
		return nil, refuse("a session works in its workspace only")
	case policy.SetMode:
		if u.by == byHook && u.Mode != holdfast.ModePlan && u.Mode != holdfast.ModeDontAsk {
			return nil, refuse("a hook may make the mode stricter only, as plan or dontAsk")
		}
		return nil, nil
	}
	if u.by == byHook && u.Behavior == "deny" && u.Type != policy.AddRules {
		return nil, refuse("a hook takes no deny rule away")
	}
	key := permit.Key(h.row, scope)
	change := func(rule string, removed bool) journal.RuleChange {
		return journal.RuleChange{Key: key, Source: u.by, RuleChange: holdfast.RuleChange{Scope: scope, Behavior: u.Behavior, Rule: rule, Removed: removed}}
	}
	var out []journal.RuleChange
	if u.Type == policy.ReplaceRules {
		for _, r := range list {
			if r.Scope == scope && r.Behavior == u.Behavior {
				out = append(out, change(r.Rule, true))
			}
		}
	}
	for _, s := range u.Rules {
		rule, err := h.e.cfg.Policy.ParseRule(s)
		if err != nil {
			return nil, err
		}
		out = append(out, change(rule.String(), u.Type == policy.RemoveRules))
	}
	if len(permit.Applied(list, out)) > 2*permit.MaxRules {
		return nil, refuse("there are too many rules")
	}
	return out, nil
}

// Who wants the permissions changed.
const (
	byHook   = "hook"
	byPolicy = "policy"
)

func updatesOf(by string, list []policy.Update) []update {
	out := make([]update, len(list))
	for i, u := range list {
		out[i] = update{u, by}
	}
	return out
}
