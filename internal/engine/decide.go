package engine

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/hooked"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/internal/pending"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/policy"
)

// Decide decides whether a tool may run: it asks the hooks, then the server's policy with the session's layers, and the
// policy may ask a person. The policy knows that tools of untrusted sessions run in a box. The permission mode is the
// session's current one.
func (h *host) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	req.Session, req.Mode, req.Sandboxed = h.u.id, h.updates.Mode(), h.row.Trust == holdfast.Untrusted
	mark := judging.MarkOf(string(h.u.id), string(h.r.id), req.Tool, policy.InputHash(req.Input))
	if h.p.judging.Refuses(mark) {
		d := policy.Decision{Verdict: policy.Denied, By: judging.By, Reason: judging.Reason}
		h.report(req, d)
		return d, h.decided(ctx, req.CallID, nil, d)
	}
	j := h.p.judging.Begin(mark)
	defer j.End()
	ctx = judging.With(ctx, j)
	k := h.hooks.Load()
	if k != nil {
		req.Hooks = k.PreToolUse(ctx, req)
		h.At("hooked")
		if ctx.Err() != nil {
			// Ignore the output of hooks that were cut off by the turn's end.
			return policy.Decision{}, context.Cause(ctx)
		}
	}
	links := h.p.links(ctx, h.row, h.lease.Held())
	req.FS, req.Named = links, links.Named
	current, err := h.policy(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	if d, gone := h.lease.WallGone(); gone {
		h.report(req, d)
		return d, nil
	}
	asked := req.Hooks.Updates
	req.Hooks.Updates = nil
	p := current
	if k.Has(hook.PermissionRequest) {
		if p, err = p.With(policy.Config{Approver: hooked.Approver{Turn: k, Next: h.asks, Updates: &asked}}); err != nil {
			return policy.Decision{}, err
		}
	}
	d, err := p.Decide(ctx, req)
	if err != nil {
		return d, err
	}
	// The rules may have changed meanwhile, for example while a person was asked; the box may have been given back then.
	if p, err = h.policy(ctx); err == nil && p != current {
		links = h.p.links(ctx, h.row, h.lease.Held())
		req.FS, req.Named = links, links.Named
		d, err = p.Recheck(ctx, req, d)
	}
	if err != nil {
		return policy.Decision{}, err
	}
	h.report(req, d)
	if d.Verdict == policy.Denied && k != nil {
		k.Denied(ctx, req, d)
	}
	return d, h.decided(ctx, req.CallID, append(permit.UpdatesOf(permit.ByHook, asked), permit.UpdatesOf(permit.ByPolicy, d.Updates)...), d)
}

// decided carries out the side effects of a decision: it adds its permission updates to the pending facts, to be recorded
// with the verdict, and cancels the turn if a denial asks for that.
func (h *host) decided(ctx context.Context, use string, updates []permit.Update, d policy.Decision) error {
	fact, err := h.updates.Take(ctx, updates)
	if err != nil {
		return err
	}
	if fact != nil {
		fact.With = func(events []journal.Draft) bool {
			return slices.ContainsFunc(events, func(e journal.Draft) bool {
				t, ok := e.Data.(holdfast.ToolDecision)
				return ok && t.ToolUseID == use && (e.Type == holdfast.EventToolAllowed || e.Type == holdfast.EventToolDenied)
			})
		}
		h.facts.Add(fact)
	}
	if d.Verdict != policy.Allowed && d.Interrupt {
		h.r.cancel(&interrupted{reason: journal.Plain("the turn was ended with a denial by " + d.By + ": " + d.Reason)})
	}
	return nil
}

// noticeSettings is the code of the notice that a workspace's settings cannot be read.
const noticeSettings = "settings.unreadable"

// policy returns the policy that decides this turn's calls, with the session's current layers. If the workspace's settings
// cannot be read, it also records a notice.
func (h *host) policy(ctx context.Context) (*policy.Engine, error) {
	p, fault, err := h.layers.Policy(ctx)
	if err != nil {
		return nil, err
	}
	if fault != "" {
		_, err = h.Record(ctx, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: noticeSettings, Text: fault}})
	}
	return p, err
}

// Scope implements policy.Decider.
func (h *host) Scope(ctx context.Context, req policy.Request) (policy.Scope, error) {
	p, err := h.policy(ctx)
	if err != nil {
		return policy.Scope{}, err
	}
	return p.Scope(ctx, req)
}

// report logs a denial to the server's log, unless the decision is marked quiet.
func (h *host) report(req policy.Request, d policy.Decision) {
	if d.Verdict == policy.Denied && !d.Quiet {
		h.p.cfg.Log.InfoContext(h.r.ctx, "a tool was denied", "session_id", h.u.id, "turn_id", h.r.id, "tool", req.Tool, "input", holdfast.Quote(string(req.Input)), "by", d.By, "rule", d.Rule, "reason", d.Reason)
	}
}

// readHooks loads the hooks of the turn, once. The turn's earlier hook runs are read from the log.
func (h *host) readHooks(ctx context.Context) error {
	if h.hooks.Load() != nil {
		return nil
	}
	k, err := h.p.hooks.Turn(ctx, hooked.TurnConfig{
		Row: h.row, ID: h.r.id, Number: h.r.number, After: h.r.begins(), Facts: &h.facts,
		Alive: func() error {
			err := h.usable()
			if err == nil {
				h.alive()
			}
			return err
		},
		Mode: h.updates.Mode, Box: h.Box, Log: h.Log,
		Updated: func(ctx context.Context, list []policy.Update) (*pending.Fact, error) {
			return h.updates.Take(ctx, permit.UpdatesOf(permit.ByHook, list))
		},
		Fail: h.r.cancel,
		Flush: func(ctx context.Context) error {
			_, err := h.Keep(ctx, nil)
			return err
		},
	})
	if k != nil {
		h.hooks.Store(k)
	}
	return err
}
