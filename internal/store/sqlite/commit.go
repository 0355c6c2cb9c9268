package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Commit implements journal.Store. A plain append of events leaves the
// revision alone; a change of the record (create, status, fields, turns) raises
// it by one. The answer to a repeated key carries no row.
//
// Texts must be UTF-8 without NUL (invalid otherwise), so that every store can
// keep them; only the error text, which can come out of a box, is cleaned
// instead of refused.
func (s *Store) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	if err := checkChange(&c); err != nil {
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

	row    *journal.Row // as it will be
	record bool         // the record changes: its revision rises
	fields bool         // more than its counters and times changes
	turns  []turnPlan
	done   journal.Committed
}

// turnPlan is a turn as it will be.
type turnPlan struct {
	journal.TurnRow
	insert bool
}

// plan decides whether the change may happen and what it writes. It reads only.
func (c *change) plan(t *tx) error {
	*c = change{Encoded: c.Encoded, by: c.by}
	if c.Key != nil {
		dup, err := t.keyUsed(c.Key)
		if err != nil || dup != "" {
			c.done.Duplicate = dup
			return err
		}
	}
	old, err := t.load(c.Session)
	if err != nil {
		return err
	}
	var row journal.Row
	switch {
	case c.Create != nil && old != nil:
		return conflict("session %s exists already", c.Session).
			WithHint("holdfast session show %s; leave out the id to get a new one", c.Session)
	case c.Create == nil && old == nil:
		return notFound(c.Session)
	case c.Create != nil:
		row = c.created(t.now)
	default:
		row = *old
	}
	if c.Revision != 0 && c.Revision != row.Revision {
		return conflict("session %s is at revision %d, not %d", c.Session, row.Revision, c.Revision)
	}
	if c.LastSeq != -1 && c.LastSeq != row.LastSeq {
		return conflict("the log of session %s is at #%d, not #%d", c.Session, row.LastSeq, c.LastSeq)
	}
	if row.LastSeq+int64(len(c.Events)) > maxSeq {
		return holdfast.Errorf(holdfast.KindTooLarge, "store.commit", "the log of session %s is full", c.Session)
	}
	row.LastSeq += int64(len(c.Events))
	for _, next := range c.Status {
		if !row.Status.CanBecome(next) {
			return conflict("session %s is %s and cannot become %s", c.Session, row.Status, next)
		}
		row.Status = next
	}
	if c.Set != nil {
		patch(&row, c.Set)
	}
	row.Spent = row.Spent.Add(c.Spent)
	if err := c.planTurns(t, &row); err != nil {
		return err
	}
	if err := c.planApprovals(t); err != nil {
		return err
	}
	if err := c.planStates(t, &row); err != nil {
		return err
	}
	c.fields = len(c.Status) > 0 || c.Set != nil
	c.record = c.fields || len(c.turns) > 0 || c.Spent != (holdfast.Spent{})
	if c.record && c.Create == nil {
		row.Revision++
	}
	c.row = &row
	return nil
}

// created is the row of a new session.
func (c *change) created(now time.Time) journal.Row {
	row := copyRow(c.Create)
	row.ID, row.Number, row.LastSeq, row.LastTurn, row.CompletedTurns, row.Revision = c.Session, 0, 0, 0, 0, 1
	row.Spent = holdfast.Spent{}
	if row.Tags == nil {
		row.Tags = []string{}
	}
	for name := range row.Env {
		row.Env[name] = "***"
	}
	if row.CreatedAt.IsZero() {
		row.CreatedAt = now
	}
	if row.LastActiveAt.IsZero() {
		row.LastActiveAt = row.CreatedAt
	}
	row.Error = cleanText(row.Error)
	row.CreatedAt = row.CreatedAt.UTC().Truncate(time.Millisecond)
	row.LastActiveAt = row.LastActiveAt.UTC().Truncate(time.Millisecond)
	return row
}

func patch(row *journal.Row, p *journal.RowPatch) {
	set(&row.Title, p.Title)
	set(&row.Mode, p.Mode)
	set(&row.Model, p.Model)
	set(&row.Trust, p.Trust)
	set(&row.Runtime, p.Runtime)
	set(&row.FilesSeeded, p.FilesSeeded)
	set(&row.HadFiles, p.HadFiles)
	set(&row.BoxUID, p.BoxUID)
	if p.Budget != nil {
		row.Budget = bounds(p.Budget)
	}
	if p.TurnBudget != nil {
		row.TurnBudget = bounds(p.TurnBudget)
	}
	if p.Network != nil {
		row.Network = append([]string{}, *p.Network...)
	}
	if p.Source != nil {
		row.Source = source(p.Source)
	}
	if p.Error != nil {
		row.Error = cleanText(*p.Error)
	}
	if p.Tags != nil {
		// Never nil: the tags are a JSON array.
		row.Tags = append([]string{}, *p.Tags...)
	}
}

func set[T any](dst, v *T) {
	if v != nil {
		*dst = *v
	}
}

// planTurns walks the turn changes in order, each on top of those before it.
func (c *change) planTurns(t *tx, row *journal.Row) error {
	for _, tc := range c.Turns {
		i := slices.IndexFunc(c.turns, func(p turnPlan) bool { return p.ID == tc.ID })
		var old *journal.TurnRow
		if i >= 0 {
			old = &c.turns[i].TurnRow
		} else {
			var err error
			if old, err = t.turn(row.Number, tc.ID); err != nil {
				return err
			}
		}
		next, err := c.moveTurn(t, row, old, tc)
		if err != nil {
			return err
		}
		if i >= 0 {
			c.turns[i].TurnRow = next
		} else {
			c.turns = append(c.turns, turnPlan{TurnRow: next, insert: tc.From == ""})
		}
	}
	return nil
}

func (c *change) moveTurn(t *tx, row *journal.Row, old *journal.TurnRow, tc journal.TurnChange) (journal.TurnRow, error) {
	var next journal.TurnRow
	switch {
	case tc.From == "":
		if old != nil {
			return next, conflict("turn %s exists already", tc.ID)
		}
		if tc.To != holdfast.TurnQueued && tc.To != holdfast.TurnRunning {
			return next, conflict("a new turn cannot be %s", holdfast.Quote(string(tc.To)))
		}
		if tc.Number != row.LastTurn+1 {
			return next, conflict("turn number %d does not follow %d", tc.Number, row.LastTurn)
		}
		row.LastTurn = tc.Number
		next = journal.TurnRow{ID: tc.ID, Session: c.Session, Number: tc.Number, CreatedAt: t.now}
	case old == nil:
		return next, holdfast.Errorf(holdfast.KindNotFound, "store.commit", "session %s has no turn %s",
			c.Session, holdfast.Quote(string(tc.ID)))
	case old.Status != tc.From:
		return next, conflict("turn %s is %s, not %s", tc.ID, old.Status, holdfast.Quote(string(tc.From)))
	case !old.Status.CanBecome(tc.To):
		return next, conflict("turn %s is %s and cannot become %s", tc.ID, old.Status, holdfast.Quote(string(tc.To)))
	default:
		next = *old
	}
	for _, seq := range []int64{tc.MessageSeq, tc.EndSeq} {
		if seq < 0 || seq > row.LastSeq {
			return next, holdfast.Errorf(holdfast.KindInvalid, "store.commit",
				"turn %s points at #%d, the log ends at #%d", tc.ID, seq, row.LastSeq)
		}
	}
	next.Status = tc.To
	if tc.MessageSeq != 0 {
		next.MessageSeq = tc.MessageSeq
	}
	if tc.EndSeq != 0 {
		next.EndSeq = tc.EndSeq
	}
	now := t.now
	switch {
	case tc.To == holdfast.TurnRunning:
		next.StartedAt, row.LastActiveAt = &now, now
	case tc.To.Terminal():
		next.EndedAt, row.LastActiveAt = &now, now
	}
	if tc.To == holdfast.TurnCompleted {
		row.CompletedTurns++
	}
	return next, nil
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
	for i := range c.turns {
		p := &c.turns[i]
		t.pages += 3
		var err error
		if p.insert {
			_, err = t.s.w.turnPut.ExecContext(t.ctx, p.ID, c.row.Number, p.Number, p.Status, p.MessageSeq, p.EndSeq,
				p.CreatedAt.UnixMilli(), toNullMS(p.StartedAt), toNullMS(p.EndedAt))
		} else {
			_, err = t.s.w.turnUpdate.ExecContext(t.ctx, p.Status, p.MessageSeq, p.EndSeq, toNullMS(p.StartedAt),
				toNullMS(p.EndedAt), c.row.Number, p.Number)
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
	first := c.row.LastSeq - int64(len(c.Events)) + 1
	c.done.Events = make([]holdfast.Event, len(c.Events))
	for i, d := range c.Events {
		e := holdfast.Event{
			Session: c.Session, Seq: first + int64(i), Type: d.Type, Turn: d.Turn,
			Data: json.RawMessage(c.Data[i]), Time: t.now,
		}
		c.done.Events[i] = e
		if err := t.append(c.row.Number, e); err != nil {
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
	t.s.cache.put(c.row)
	c.done.Row = copyRow(c.row)
	return nil
}

func (c *change) applyRow(t *tx) error {
	r := c.row
	if !c.record && c.Create == nil {
		return nil
	}
	t.pages += 2
	spent, budget, err := encodeSpent(r)
	if err != nil {
		return err
	}
	if c.Create == nil && !c.fields {
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
