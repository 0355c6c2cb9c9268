package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Commit implements journal.Store. The answer to a repeated key carries no row.
func (s *Store) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	if err := c.Check(); err != nil {
		return journal.Committed{}, err
	}
	ch := &change{Encoded: c, by: journal.By(ctx)}
	weight := 1024
	for _, d := range c.Data {
		weight += len(d)
	}
	if err := s.do(ctx, "store.commit", &op{plan: ch.plan, apply: ch.apply, weight: weight, admits: admits(&c)}); err != nil {
		return journal.Committed{}, err
	}
	return ch.done, nil
}

// admits reports whether a change brings a new session, turn or message.
func admits(c *journal.Encoded) bool {
	return c.Create != nil || c.Key != nil ||
		slices.ContainsFunc(c.Turns, func(t journal.TurnChange) bool { return t.From == "" })
}

// change is a journal change on its way through the writer.
type change struct {
	journal.Encoded
	by string // who asked for it

	planned journal.Plan
	done    journal.Committed
}

// plan loads what the change is about and lets the journal decide. It reads only.
func (c *change) plan(t *tx) error {
	*c = change{Encoded: c.Encoded, by: c.by}
	if c.Key != nil {
		dup, err := t.keyUsed(c.Key)
		if err != nil || dup != "" {
			c.done.Duplicate = dup
			return err
		}
	}
	state, err := t.state(&c.Encoded)
	if err != nil {
		return err
	}
	c.planned, err = c.Plan(state)
	return err
}

// state is what the database holds of the things that a change is about.
func (t *tx) state(c *journal.Encoded) (s journal.State, err error) {
	s.Now = t.now
	if s.Row, err = t.load(c.Session); err != nil {
		return s, err
	}
	if len(c.Turns) > 0 {
		s.Turns = make(map[holdfast.TurnID]journal.TurnRow, len(c.Turns))
	}
	for _, tc := range c.Turns {
		turn, ok, err := t.turn(s.Row, tc.ID)
		if err != nil {
			return s, err
		}
		if ok {
			s.Turns[tc.ID] = turn
		}
	}
	if len(c.Approvals) > 0 {
		s.Approvals = make(map[holdfast.ApprovalID]holdfast.Approval, len(c.Approvals))
	}
	for _, ac := range c.Approvals {
		a, _, err := scanApproval(t.s.w.approvals.get.QueryRowContext(t.ctx, ac.About()))
		ok, err := found(err)
		if err != nil {
			return s, err
		}
		if ok {
			s.Approvals[a.ID] = a
		}
	}
	if len(c.States) > 0 && s.Row != nil {
		err = t.s.w.states.newest.QueryRowContext(t.ctx, s.Row.Number).Scan(&s.Generation)
	}
	return s, err
}

// apply writes what plan decided.
func (c *change) apply(t *tx) error {
	if c.done.Duplicate != "" {
		return nil
	}
	t.touched = append(t.touched, c.Session)
	if err := c.applyRow(t); err != nil {
		return err
	}
	row := &c.planned.Row
	for i := range c.planned.Turns {
		p := &c.planned.Turns[i]
		t.pages += 3
		var err error
		if p.New {
			_, err = t.s.w.turnPut.ExecContext(t.ctx, p.ID, row.Number, p.Number, p.Status, p.MessageSeq, p.EndSeq,
				p.CreatedAt.UnixMilli(), toNullMS(p.StartedAt), toNullMS(p.EndedAt))
		} else {
			_, err = t.s.w.turnUpdate.ExecContext(t.ctx, p.Status, p.MessageSeq, p.EndSeq, toNullMS(p.StartedAt),
				toNullMS(p.EndedAt), row.Number, p.Number)
		}
		if err != nil {
			return err
		}
	}
	if err := c.applyApprovals(t); err != nil {
		return err
	}
	if err := c.applyStates(t); err != nil {
		return err
	}
	if k := c.Key; k != nil {
		t.pages++
		if _, err := t.s.w.keys.put.ExecContext(t.ctx, k.Scope, k.Value, k.Hash, k.Ref, t.nowMS); err != nil {
			return err
		}
	}
	c.done.Events = make([]holdfast.Event, len(c.Events))
	for i, d := range c.Events {
		e := holdfast.Event{
			Session: c.Session, Seq: c.planned.First + int64(i), Type: d.Type, Turn: d.Turn, Agent: d.Agent,
			Data: json.RawMessage(c.Data[i]), Time: t.now,
		}
		c.done.Events[i] = e
		if err := t.append(row.Number, e); err != nil {
			return err
		}
		t.audited(e, c.by)
		if len(c.Undelivered) > 0 {
			continue
		}
		if err := t.deliver(e); err != nil {
			return err
		}
	}
	if err := t.undelivered(c.Undelivered); err != nil {
		return err
	}
	t.s.cache.put(*row)
	c.done.Row = row.Clone()
	return nil
}

func (c *change) applyRow(t *tx) error {
	r := &c.planned.Row
	if !c.planned.Touched {
		return nil
	}
	t.pages += 2
	spent, budget, err := encodeSpent(r)
	if err != nil {
		return err
	}
	if !c.planned.Patched {
		_, err := t.s.w.touchRow.ExecContext(t.ctx, r.Revision, r.CompletedTurns, r.LastTurn,
			r.LastActiveAt.UnixMilli(), spent, r.Number)
		return err
	}
	tags, err := encodeTags(r.Tags)
	if err != nil {
		return err
	}
	if c.Create == nil {
		_, err := t.s.w.updateRow.ExecContext(t.ctx, r.Revision, r.CompletedTurns, r.LastTurn,
			r.LastActiveAt.UnixMilli(), spent, budget, r.Status, r.Trust, r.Runtime, r.Model, r.Mode, r.Title, strings.ToLower(r.Title), tags,
			r.Error, r.FilesSeeded, r.HadFiles, r.BoxUID, encodeNetwork(r.Network), encodeSource(r.Source), r.Number)
		return err
	}
	env, err := encodeEnv(r.Env)
	if err != nil {
		return err
	}
	var key *string
	if c.Key != nil {
		key = &c.Key.Value
	}
	t.pages += 3
	res, err := t.s.w.insertRow.ExecContext(t.ctx, r.ID, r.Status, r.Agent, r.AgentVersion, r.Trust, r.Runtime,
		r.Model, r.Mode, r.Title, strings.ToLower(r.Title), tags, env, r.SealedEnv, r.Error, r.Revision,
		r.CompletedTurns, r.LastTurn, r.FilesSeeded, r.HadFiles, key, r.CreatedAt.UnixMilli(),
		r.LastActiveAt.UnixMilli(), spent, budget, r.BoxUID, encodeNetwork(r.Network), encodeSource(r.Source))
	if err != nil {
		return err
	}
	r.Number, err = res.LastInsertId()
	return err
}
