package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Commit implements journal.Store. For a repeated idempotency key the result has no Row.
func (s *Sessions) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	if err := c.Check(); err != nil {
		return journal.Committed{}, err
	}
	ch := &change{in: c, s: s, by: journal.By(ctx)}
	weight := 1024
	for _, d := range c.Data {
		weight += len(d)
	}
	err := s.db.Do(ctx, "store.commit", &db.Op{Plan: ch.plan, Apply: ch.apply, Weight: weight, Admits: admits(&c)})
	if err != nil {
		return journal.Committed{}, err
	}
	return ch.done, nil
}

// admits reports whether a change brings new work: a new session or turn, or any change with an idempotency key.
func admits(c *journal.Encoded) bool {
	return c.Create != nil || c.Key != nil ||
		slices.ContainsFunc(c.Turns, func(t journal.TurnChange) bool { return t.From == "" })
}

// change is a journal change while the writer carries it out.
type change struct {
	in journal.Encoded
	s  *Sessions
	by string // the caller who asked for the change

	planned journal.Plan
	others  []int64 // the packs that checkpoints.Store.State returned
	done    journal.Committed
}

// plan loads the stored state that the change depends on, and has the journal plan the change or
// refuse it. It only reads.
func (c *change) plan(t *db.Tx) error {
	*c = change{in: c.in, s: c.s, by: c.by}
	if c.in.Key != nil {
		dup, err := keyRef(c.in.Key, c.s.keys.get.QueryRowContext(t.Ctx, c.in.Key.Scope, c.in.Key.Value))
		if err != nil || dup != "" {
			c.done.Duplicate = dup
			return err
		}
	}
	state, others, err := c.s.state(t, &c.in)
	if err != nil {
		return err
	}
	c.others = others
	c.planned, err = c.in.Plan(state)
	return err
}

// state returns the stored session, turns, approvals, agent-state generation and files that a change
// is about. others are the packs that checkpoints.Store.State returns.
func (s *Sessions) state(t *db.Tx, c *journal.Encoded) (st journal.State, others []int64, err error) {
	st.Now, st.Token = t.Now, journal.Token(s.db.Epoch())
	if st.Row, err = s.rows.load(t, c.Session); err != nil {
		return st, nil, err
	}
	if c.Create != nil && c.Create.Workspace != "" {
		var one int
		if st.Workspace, err = db.Found(s.rows.workspace.QueryRowContext(t.Ctx, c.Create.Workspace).Scan(&one)); err != nil {
			return st, nil, err
		}
	}
	if len(c.Turns) > 0 {
		st.Turns = make(map[holdfast.TurnID]journal.TurnRow, len(c.Turns))
	}
	for _, tc := range c.Turns {
		turn, ok, err := s.turns.load(t, st.Row, tc.ID)
		if err != nil {
			return st, nil, err
		}
		if ok {
			st.Turns[tc.ID] = turn
		}
	}
	if len(c.Approvals) > 0 {
		st.Approvals = make(map[holdfast.ApprovalID]holdfast.Approval, len(c.Approvals))
	}
	for _, ac := range c.Approvals {
		a, ok, err := s.approvals.load(t, ac.About())
		if err != nil {
			return st, nil, err
		}
		if ok {
			st.Approvals[a.ID] = a
		}
	}
	if len(c.States) > 0 && st.Row != nil {
		if err := s.states.newest.QueryRowContext(t.Ctx, st.Row.Number).Scan(&st.Generation); err != nil {
			return st, nil, err
		}
	}
	if c.Files != nil {
		st.Files, others, err = s.checkpoints.State(t, c.Session, c.Files)
	}
	return st, others, err
}

// apply writes the planned change, with its audit records and webhook deliveries.
func (c *change) apply(t *db.Tx) error {
	if c.done.Duplicate != "" {
		return nil
	}
	s, row := c.s, &c.planned.Row
	if err := s.rows.write(t, &c.planned, c.in.Create != nil, c.in.Key); err != nil {
		return err
	}
	if err := s.turns.write(t, row.Number, c.planned.Turns); err != nil {
		return err
	}
	if err := s.approvals.write(t, row, &c.in); err != nil {
		return err
	}
	if err := s.states.write(t, row, c.in.States); err != nil {
		return err
	}
	if c.in.Files != nil {
		var err error
		if c.done.Packs, err = s.checkpoints.Write(t, row, c.in.Files, c.others); err != nil {
			return err
		}
	}
	if k := c.in.Key; k != nil {
		t.Pages++
		if _, err := s.keys.put.ExecContext(t.Ctx, k.Scope, k.Value, k.Hash, k.Ref, t.NowMS); err != nil {
			return err
		}
	}
	if len(c.in.Events) > 0 {
		c.done.Number = t.NextNumber()
	}
	c.done.Events = make([]holdfast.Event, len(c.in.Events))
	for i, d := range c.in.Events {
		e := holdfast.Event{
			Session: c.in.Session, Seq: c.planned.First + int64(i), Type: d.Type, Turn: d.Turn, Agent: d.Agent,
			Data: json.RawMessage(c.in.Data[i]), Time: t.Now,
		}
		if !d.Copied.IsZero() {
			e.Time = d.Copied
		}
		c.done.Events[i] = e
		if err := s.events.append(t, row.Number, c.done.Number, e); err != nil {
			return err
		}
		if !d.Copied.IsZero() {
			continue
		}
		s.audit.event(t, e, c.by)
		if len(c.in.Undelivered) > 0 {
			continue
		}
		if err := s.outbox.deliver(t, e); err != nil {
			return err
		}
	}
	if err := s.outbox.remove(t, c.in.Undelivered...); err != nil {
		return err
	}
	s.rows.cache.put(*row)
	c.done.Row = row.Clone()
	return nil
}

// idempotency is the table of idempotency keys.
type idempotency struct {
	get, put, remove, removeScope *sql.Stmt
	read                          *sql.Stmt
}

func newIdempotency(s *db.Setup) *idempotency {
	const one = `SELECT hash, ref FROM idempotency WHERE scope = ? AND value = ?`
	k := &idempotency{}
	s.Write(&k.get, one)
	s.Write(&k.put, `INSERT INTO idempotency (scope, value, hash, ref, at) VALUES (?,?,?,?,?)`)
	s.Write(&k.remove, `DELETE FROM idempotency WHERE scope = 'session.create' AND value = ? AND ref = ?`)
	s.Write(&k.removeScope, `DELETE FROM idempotency WHERE scope = ?`)
	s.Read(&k.read, one)
	return k
}

// keyRef reads the id that the request with this idempotency key created; empty for a new key,
// conflict if the key was used for another request.
func keyRef(k *journal.Key, row db.Scanner) (string, error) {
	var hash, ref string
	ok, err := db.Found(row.Scan(&hash, &ref))
	if err != nil || !ok {
		return "", err
	}
	if hash != k.Hash {
		return "", holdfast.Errorf(holdfast.KindConflict, "store.commit",
			"the idempotency key %s was used for another request", holdfast.Quote(k.Value)).
			WithHint("send each new request with a new idempotency key")
	}
	return ref, nil
}
