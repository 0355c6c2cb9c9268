package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// MaxSeq is the largest sequence number of a session's log.
const MaxSeq = 1<<32 - 1

// State is what the store contains, as far as it decides whether a change is allowed.
type State struct {
	// Row is the session's row, or nil for an unknown session. Plan does not change it.
	Row *Row
	// Turns and Approvals are the stored turns and approvals that the change names, by id; ids that do not
	// exist are left out. They may belong to other sessions.
	Turns     map[holdfast.TurnID]TurnRow
	Approvals map[holdfast.ApprovalID]holdfast.Approval
	// Generation is the newest generation of the session's agent states; 0 means none. Only a change
	// with States uses it.
	Generation int64
	// Files says what is stored of the checkpoints that the change names. Only a change with Files uses it.
	Files StoredFiles
	// Workspace is true if the workspace of the session that the change creates exists and is not being deleted.
	Workspace bool
	// Token is the newest token of a lease on the session's scope.
	Token Token
	// Now is the time of the change.
	Now time.Time
}

// Plan is the result of planning a change: the rows that it writes. Its approvals, rules, agent
// states and files are written as they are and are not repeated here.
type Plan struct {
	// Row is the session's new row. Number is still 0 for a new session.
	Row Row
	// Touched is true if the row is new or its revision rises. Patched is true if the row is new or if fields
	// other than its counters and times can change.
	Touched, Patched bool
	// Turns are the new turn rows; those with New are inserted.
	Turns []PlannedTurn
	// First is the sequence number of the change's first event.
	First int64
}

// PlannedTurn is a turn row to write; New is true if the row is to be inserted.
type PlannedTurn struct {
	TurnRow
	New bool
}

// Plan decides whether a change that passes Check is allowed in a state, and returns what it
// writes. It is pure: the same change in the same state gives the same plan. Events alone leave the
// revision unchanged; a change of the row (status, fields, usage, turns, rewind) raises it by one. Plan fails with
// conflict if the state is not what the change expects, with not_found for a session or workspace that does not exist and
// for a turn, approval or checkpoint that the session does not have, with too_large for a full log, and with invalid for
// a number beyond the end of the log or beyond the last turn.
func (c *Encoded) Plan(s State) (Plan, error) {
	var row Row
	switch {
	case c.Token != s.Token:
		return Plan{}, conflict("another server took over session %s: the newest token is %d, the change has %d", c.Session, s.Token, c.Token).
			WithHint("look for the other holdfast server and stop one of the two servers")
	case c.Create != nil && s.Row != nil:
		return Plan{}, conflict("session %s exists already", c.Session).
			WithHint("holdfast session show %s shows that session; to get a new one, leave out the id", c.Session)
	case c.Create == nil && s.Row == nil:
		return Plan{}, NoSession(c.Session)
	case c.Create != nil && c.Create.Workspace != "" && !s.Workspace:
		return Plan{}, NoWorkspace(c.Create.Workspace)
	case c.Create != nil:
		row = c.created(s.Now)
	default:
		row = *s.Row
	}
	if c.Revision != 0 && c.Revision != row.Revision {
		return Plan{}, conflict("session %s is at revision %d, not %d", c.Session, row.Revision, c.Revision)
	}
	if c.LastSeq != -1 && c.LastSeq != row.LastSeq {
		return Plan{}, conflict("the newest event of session %s is #%d, not #%d", c.Session, row.LastSeq, c.LastSeq)
	}
	if row.LastSeq+int64(len(c.Events)) > MaxSeq {
		return Plan{}, holdfast.Errorf(holdfast.KindTooLarge, opCommit, "the log of session %s is full: it has as many events as a log can number", c.Session)
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
	if row.PurgeAt != nil && row.Status != holdfast.StatusEnded {
		return Plan{}, conflict("session %s is %s, and only an ended session can be in the trash", c.Session, row.Status)
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
	if err := c.planFiles(s, &row); err != nil {
		return Plan{}, err
	}
	p.Turns = turns
	p.Patched = c.Create != nil || len(c.Status) > 0 || c.Set != nil
	p.Touched = p.Patched || len(turns) > 0 || c.Spent != (holdfast.Spent{}) || c.Files != nil && c.Files.Rewind != nil
	if p.Touched && c.Create == nil {
		row.Revision++
	}
	p.Row = row
	return p, nil
}

// created returns the row of a new session.
func (c *Encoded) created(now time.Time) Row {
	row := c.Create.Clone()
	row.ID, row.Number, row.LastSeq, row.LastTurn, row.CompletedTurns, row.Revision = c.Session, 0, 0, 0, 0, 1
	row.Spent, row.PurgeAt = holdfast.Spent{}, nil
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

// Clone returns a deep copy of the row. Budgets without any limit become nil.
func (r *Row) Clone() Row {
	c := *r
	c.Budget, c.TurnBudget = bounds(r.Budget), bounds(r.TurnBudget)
	c.Network = slices.Clone(r.Network)
	c.Source, c.PurgeAt = clone(r.Source), clone(r.PurgeAt)
	c.Given.Bounds = r.Given.Bounds.Clone()
	c.Tags, c.Env, c.Given.SealedEnv = slices.Clone(r.Tags), maps.Clone(r.Env), slices.Clone(r.Given.SealedEnv)
	return c
}

// bounds returns a copy of a budget, or nil if it has no limit.
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
	if p.Workspace != nil {
		row.Workspace, row.Mount = *p.Workspace, ""
	}
	if p.Bounds != nil {
		row.Given.Bounds = p.Bounds.Clone()
	}
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
	if p.PurgeAt != nil {
		row.PurgeAt = nil
		if !p.PurgeAt.IsZero() {
			at := p.PurgeAt.UTC().Truncate(time.Millisecond)
			row.PurgeAt = &at
		}
	}
	if p.Error != nil {
		row.Error = cleanText(*p.Error)
	}
	if p.Tags != nil {
		// The tags are never nil, so that their JSON is an array.
		row.Tags = append([]string{}, *p.Tags...)
	}
}

func set[T any](dst, v *T) {
	if v != nil {
		*dst = *v
	}
}

// planTurns applies the turn changes in order; each one sees the results of the earlier ones.
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
			return next, conflict("a new turn has the number %d, but the session's last turn is number %d", tc.Number, row.LastTurn)
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
				"turn %s refers to event #%d, but the log ends at #%d", tc.ID, seq, row.LastSeq)
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

// planApprovals checks the approval changes against the stored approvals. Check made sure that no two of them
// name the same approval.
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

// answered returns the conflict error for an approval that is answered or expired already. It quotes the answer.
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
		WithHint("list the questions that are still open: holdfast approvals list")
}

// planStates checks that the generations of the agent states continue the stored ones without a
// gap.
func (c *Encoded) planStates(s State) error {
	newest := s.Generation
	for _, st := range c.States {
		if st.Generation > newest+1 {
			return conflict("agent state generation %d of session %s is not the one after generation %d", st.Generation, c.Session, newest)
		}
		newest = max(newest, st.Generation)
	}
	return nil
}

const opCommit = "store.commit"

func conflict(format string, args ...any) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindConflict, opCommit, format, args...)
}

// NoSession returns the not_found error for a session that does not exist.
func NoSession(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store", "there is no session %s", holdfast.Quote(string(id))).
		WithHint("holdfast session list shows the sessions")
}

// NoWorkspace returns the not_found error for a workspace that does not exist.
func NoWorkspace(id holdfast.Slug) error {
	return holdfast.Errorf(holdfast.KindNotFound, "workspace", "there is no workspace %s", holdfast.Quote(string(id))).
		WithHint("holdfast workspace list shows the workspaces")
}

// NoApproval returns the not_found error for an approval that does not exist.
func NoApproval(id holdfast.ApprovalID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "approval", "there is no approval %s", holdfast.Quote(string(id))).
		WithHint("holdfast approvals list shows the approvals")
}
