package engine

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Create creates an active session in one transaction, without waiting for a box. A repeated request
// with the same idempotency key returns the session that the first one created, with replayed true.
func (e *Engine) Create(ctx context.Context, req holdfast.CreateSession, key string) (s holdfast.Session, replayed bool, err error) {
	var k *journal.Key
	if key != "" {
		k = &journal.Key{Scope: "session.create", Value: key, Hash: journal.HashOf(req)}
	}
	release := sync.OnceFunc(e.p.cfg.Sealer.Hold())
	defer release()
	row, lowered, err := e.p.choices.New(ctx, req)
	if err != nil {
		return e.createdBefore(ctx, k, err)
	}
	c := journal.NewChange(row.ID)
	c.Create = &row
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated, Data: created(row.Session)}}
	if lowered != nil {
		c.Events = append(c.Events, *lowered)
	}
	if c.Events, err = e.p.policies.Unwalled(ctx, row, c.Events); err != nil {
		return e.createdBefore(ctx, k, err)
	}
	if c.Key = k; k != nil {
		k.Ref = string(row.ID)
	}
	done, err := e.p.cfg.Journal.Commit(ctx, c)
	release()
	if err != nil {
		return holdfast.Session{}, false, err
	}
	if done.Duplicate != "" {
		s, err = e.p.views.Session(ctx, holdfast.SessionID(done.Duplicate))
		return s, true, err
	}
	e.p.hooks.TellOf(ctx, done.Row, hook.Input{Event: hook.Setup, Trigger: "created"})
	u := e.p.units.lock(row.ID)
	defer e.p.units.unlock(u)
	e.turns.warm(u, done.Row)
	return done.Row.Session, false, nil
}

// created returns the payload of a session.created event.
func created(s holdfast.Session) holdfast.SessionCreated {
	return holdfast.SessionCreated{
		Agent: s.Agent, AgentVersion: s.AgentVersion, Workspace: s.Workspace, Mount: s.Mount, Trust: s.Trust, Runtime: s.Runtime, Model: s.Model, Mode: s.Mode, Title: s.Title,
		Budget: s.Budget, TurnBudget: s.TurnBudget, Network: s.Network,
	}
}

// createdBefore returns the session that an earlier request with the key k created, or refusal if there is none. Create
// calls it when the request itself would fail now, for example because the agent was deleted since.
func (e *Engine) createdBefore(ctx context.Context, k *journal.Key, refusal error) (s holdfast.Session, replayed bool, err error) {
	if k == nil {
		return s, false, refusal
	}
	ref, err := e.p.cfg.Stores.Sessions.KeyRef(ctx, *k)
	if err != nil {
		return s, false, err
	}
	if ref == "" {
		return s, false, refusal
	}
	s, err = e.p.views.Session(ctx, holdfast.SessionID(ref))
	return s, true, err
}
