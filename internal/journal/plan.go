package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// MaxSeq is the largest sequence number of a session's log.
const MaxSeq = 1<<32 - 1

// State is what a store holds of the things that a change is about.
type State struct {
	// Row is the session; nil for an unknown one. It is not changed.
	Row *Row
	// Turns and Approvals are those that the change names, by id; one that does not exist
	// is left out. They may belong to other sessions.
	Turns     map[holdfast.TurnID]TurnRow
	Approvals map[holdfast.ApprovalID]holdfast.Approval
	// Generation is the newest of the session's agent states; 0 is none. It is looked at
	// only for a change with States.
	Generation int64
	// Now is the time of the change.
	Now time.Time
}

// Plan is what a change writes besides its approvals, rules and agent states, which are
// written as they are.
type Plan struct {
	// Row is the session as it will be. A new one has no Number yet.
	Row Row
	// Touched: the row's revision rises. Patched: more of it changes than its counters and
	// times, or it is new.
	Touched, Patched bool
	// Turns are the turns as they will be, those that are New to be inserted.
	Turns []PlannedTurn
	// First is the sequence number of the change's first event.
	First int64
}

// PlannedTurn is a turn as it will be.
type PlannedTurn struct {
	TurnRow
	New bool
}

// Plan decides whether a change that passes Check may happen in a state, and what it writes.
// It is pure: the same change in the same state gives the same plan. A plain append of events leaves the
// revision alone; a change of the record (create, status, fields, turns) raises it by one.
// Errors: conflict where the state is not what the change expects, not_found for a session,
// turn or approval that the session does not have, too_large for a full log.
func (c *Encoded) Plan(s State) (Plan, error) {
	var row Row
	switch {
	case c.Create != nil && s.Row != nil:
		return Plan{}, conflict("session %s exists already", c.Session).
			WithHint("holdfast session show %s; leave out the id to get a new one", c.Session)
	case c.Create == nil && s.Row == nil:
		return Plan{}, NoSession(c.Session)
	case c.Create != nil:
		row = c.created(s.Now)
	default:
		row = *s.Row
	}
	if c.Revision != 0 && c.Revision != row.Revision {
		return Plan{}, conflict("session %s is at revision %d, not %d", c.Session, row.Revision, c.Revision)
	}
	if c.LastSeq != -1 && c.LastSeq != row.LastSeq {
		return Plan{}, conflict("the log of session %s is at #%d, not #%d", c.Session, row.LastSeq, c.LastSeq)
	}
	if row.LastSeq+int64(len(c.Events)) > MaxSeq {
		return Plan{}, holdfast.Errorf(holdfast.KindTooLarge, opCommit, "the log of session %s is full", c.Session)
	}
	p := Plan{First: row.LastSeq + 1}
	row.LastSeq += int64(len(c.Events))
	for _, next := range c.Status {
		if !row.Status.CanBecome(next) {
			return Plan{}, conflict("session %s is %s and cannot become %s", c.Session, row.Status, next)
		}
		row.Status = next
	}
	if c.Set != nil {
		c.Set.apply(&row)
	}
	row.Spent = row.Spent.Add(c.Spent)
	turns, err := c.planTurns(s, &row)
	if err != nil {
		return Plan{}, err
	}
	if err := c.planApprovals(s); err != nil {
		return Plan{}, err
	}
	if err := c.planStates(s); err != nil {
		return Plan{}, err
	}
	p.Turns = turns
	p.Patched = c.Create != nil || len(c.Status) > 0 || c.Set != nil
	p.Touched = p.Patched || len(turns) > 0 || c.Spent != (holdfast.Spent{})
	if p.Touched && c.Create == nil {
		row.Revision++
	}
	p.Row = row
	return p, nil
}

// created is the row of a new session.
func (c *Encoded) created(now time.Time) Row {
	row := c.Create.Clone()
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

// Clone is a row that shares nothing with r. Its budgets are nil where they bound nothing.
func (r *Row) Clone() Row {
	c := *r
	c.Budget, c.TurnBudget = bounds(r.Budget), bounds(r.TurnBudget)
	c.Network = slices.Clone(r.Network)
	c.Source = clone(r.Source)
	c.Tags, c.Env, c.SealedEnv = slices.Clone(r.Tags), maps.Clone(r.Env), slices.Clone(r.SealedEnv)
	return c
}

// bounds is a copy of a budget; nil for one without any bound.
func bounds(b *holdfast.Budget) *holdfast.Budget {
	if b == nil || *b == (holdfast.Budget{}) {
		return nil
	}
	return clone(b)
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func (p *RowPatch) apply(row *Row) {
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
		row.Source = clone(p.Source)
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
func (c *Encoded) planTurns(s State, row *Row) (out []PlannedTurn, err error) {
	for _, tc := range c.Turns {
		i := slices.IndexFunc(out, func(p PlannedTurn) bool { return p.ID == tc.ID })
		var old *TurnRow
		if i >= 0 {
			old = &out[i].TurnRow
		} else if t, ok := s.Turns[tc.ID]; ok {
			if t.Session != c.Session {
				return nil, holdfast.Errorf(holdfast.KindNotFound, opCommit, "turn %s belongs to another session", tc.ID)
			}
			old = &t
		}
		next, err := c.moveTurn(s, row, old, tc)
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			out[i].TurnRow = next
		} else {
			out = append(out, PlannedTurn{TurnRow: next, New: tc.From == ""})
		}
	}
	return out, nil
}

func (c *Encoded) moveTurn(s State, row *Row, old *TurnRow, tc TurnChange) (TurnRow, error) {
	var next TurnRow
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
		next = TurnRow{ID: tc.ID, Session: c.Session, Number: tc.Number, CreatedAt: s.Now}
	case old == nil:
		return next, holdfast.Errorf(holdfast.KindNotFound, opCommit, "session %s has no turn %s",
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
			return next, holdfast.Errorf(holdfast.KindInvalid, opCommit,
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
	now := s.Now
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

// planApprovals checks the questions of a change. Those of one change are about different
// approvals.
func (c *Encoded) planApprovals(s State) error {
	for _, ac := range c.Approvals {
		id := ac.About()
		old, ok := s.Approvals[id]
		switch {
		case ac.Ask != nil && ok:
			return conflict("approval %s exists already", id)
		case ac.Ask != nil:
		case !ok || old.Session != c.Session:
			return NoApproval(id)
		case old.State != holdfast.ApprovalPending:
			return answered(old)
		}
	}
	return nil
}

// answered refuses a second answer, and tells the first.
func answered(a holdfast.Approval) error {
	text := "approval " + string(a.ID) + " is " + string(a.State) + " already"
	if a.AnsweredBy != "" {
		text += " by " + holdfast.Quote(a.AnsweredBy)
	}
	if a.AnsweredAt != nil {
		text += " at " + a.AnsweredAt.Format(time.RFC3339)
	}
	if a.Answer != "" {
		text += ": " + holdfast.Quote(a.Answer)
	}
	return holdfast.Errorf(holdfast.KindConflict, "approval", "%s", text).
		WithHint("holdfast approvals list shows what is still open")
}

// planStates checks that generations follow each other.
func (c *Encoded) planStates(s State) error {
	newest := s.Generation
	for _, st := range c.States {
		if st.Generation > newest+1 {
			return conflict("agent state %d of session %s does not follow %d", st.Generation, c.Session, newest)
		}
		newest = max(newest, st.Generation)
	}
	return nil
}

const opCommit = "store.commit"

func conflict(format string, args ...any) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindConflict, opCommit, format, args...)
}

// NoSession is the error for a session that does not exist: not_found.
func NoSession(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store", "there is no session %s", holdfast.Quote(string(id))).
		WithHint("holdfast session list shows them")
}

// NoApproval is the error for an approval that does not exist: not_found.
func NoApproval(id holdfast.ApprovalID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "approval", "there is no approval %s", holdfast.Quote(string(id))).
		WithHint("holdfast approvals list shows them")
}
