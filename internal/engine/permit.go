package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
)

// Decide asks whether a tool may run: hooks, then the policy of the server with
// the layers of this session, then a person. An untrusted session's tools run in
// a box or not at all. The mode is the session's of this moment.
func (h *host) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	req.Session, req.Mode, req.Sandboxed = h.u.id, *h.mode.Load(), h.row.Trust == holdfast.Untrusted
	k := h.hooked()
	mark := judging.MarkOf(string(h.u.id), string(h.r.id), req.Tool, holdfast.InputHash(req.Input))
	if h.e.judging.Refuses(mark) {
		d := policy.Decision{Verdict: policy.Denied, By: byJudging, Reason: textJudging}
		h.report(req, d)
		return d, h.decided(ctx, req.CallID, nil, d)
	}
	j := h.e.judging.Begin(mark)
	defer j.End()
	ctx = context.WithValue(ctx, judgement{}, j)
	req.Hooks = k.preToolUse(ctx, req)
	if k != nil {
		h.At("hooked")
	}
	if k != nil && ctx.Err() != nil {
		// What is said of hooks that were cut off is no verdict.
		return policy.Decision{}, context.Cause(ctx)
	}
	req.FS = h.links(ctx)
	p, err := h.policy(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	if d, gone := h.wallGone(); gone {
		h.report(req, d)
		return d, nil
	}
	said := req.Hooks.Updates
	req.Hooks.Updates = nil
	if k != nil && k.has(hook.PermissionRequest) {
		if p, err = p.With(policy.Config{Approver: requester{k, h, &said}}); err != nil {
			return policy.Decision{}, err
		}
	}
	d, err := p.Decide(ctx, req)
	if err != nil {
		return d, err
	}
	h.report(req, d)
	if d.Verdict == policy.Denied {
		k.denied(ctx, req, d)
	}
	return d, h.decided(ctx, req.CallID, append(updatesOf(byHook, said), updatesOf(byPolicy, d.Updates)...), d)
}

// byJudging decides about a call that the server probably died of.
const (
	byJudging   = "crash guard"
	textJudging = "the server ended two times in a row while it judged this call, so it is not judged again; try another way"
)

// judgement is the key of a context's *judging.Judgement.
type judgement struct{}

// policy is what decides in this turn, as things stand.
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

// layered gives permit the layers of sessions. The rules are the store's.
type layered struct {
	Approvals
	e *Engine
}

// Layer implements permit.Sources.
func (l layered) Layer(ctx context.Context, version holdfast.VersionID) (policy.Config, error) {
	s, err := l.e.cfg.Agents.Settings(ctx, version)
	return s.Layer(), err
}

// Workspace implements permit.Sources.
func (l layered) Workspace(ctx context.Context, row journal.Row) (permit.Workspace, error) {
	s, err := l.e.cfg.Agents.Settings(ctx, row.AgentVersion)
	if err != nil {
		return nil, err
	}
	return &settings.Workspace{Tree: l.e.boxes.Workspace(row.ID), Session: row.ID, Same: s.Sums, Tools: l.e.cfg.Policy.Tools()}, nil
}

// links makes the session's Links. They ask the box of this turn, or one that already runs.
func (h *host) links(ctx context.Context) *permit.Links {
	box := h.held()
	if box == nil {
		box = h.e.boxes.Running(h.row)
	}
	return permit.NewLinks(ctx, box, h.e.boxes.Workspace(h.u.id), h.e.cfg.Clock)
}

// noticeSettings says that a workspace's settings cannot be read.
const noticeSettings = "settings.unreadable"
