package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const (
	// pendingCols leaves out the state and the columns that only an answer fills: reading a column costs a third
	// of a microsecond, and lists of pending approvals do not need these.
	pendingCols = `number, id, session_id, turn, tool_use, tool, input, input_hash, asked_by, rule, reason, suggestions,
		asked_at, expires_at`
	approvalCols = pendingCols + `, state, answered_at, answered_by, scope, answer`
	approvalOne  = `SELECT ` + approvalCols + ` FROM approvals WHERE id = ?`
)

// Approvals is the store of approvals, which are questions to persons, and of the permission rules that were
// added to sessions and workspaces. Sessions.Commit writes both. Safe for concurrent use.
type Approvals struct {
	db   *db.DB
	rows *rows
	// ruled caches rules by key; changed are the keys whose rules the open transaction changes.
	ruled   ruled
	changed []string

	get, put, end, remove            *sql.Stmt
	putRule, removeRule, removeRules *sql.Stmt
	one, expiry, list                *sql.Stmt
}

func newApprovals(s *db.Setup, r *rows) *Approvals {
	a := &Approvals{db: s.DB(), rows: r}
	s.Write(&a.get, approvalOne)
	s.Write(&a.put, `INSERT INTO approvals (id, session, session_id, turn, tool_use, tool, input, input_hash, asked_by,
		rule, reason, suggestions, state, asked_at, expires_at, answered_by, scope, answer)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,'pending',?,?,'','','')`)
	s.Write(&a.end, `UPDATE approvals SET state = ?, answered_at = ?, answered_by = ?, scope = ?, answer = ?
		WHERE id = ? AND state = 'pending'`)
	s.Write(&a.remove, `DELETE FROM approvals WHERE session = ?`)
	s.Write(&a.putRule, `INSERT INTO rules (scope, key, behavior, rule, source, at, trust) VALUES (?,?,?,?,?,?,?)
		ON CONFLICT DO UPDATE SET trust = excluded.trust WHERE excluded.trust = 'trusted'`)
	s.Write(&a.removeRule, `DELETE FROM rules WHERE key = ? AND scope = ? AND behavior = ? AND rule = ?`)
	s.Write(&a.removeRules, `DELETE FROM rules WHERE key = ?`)
	s.Read(&a.one, approvalOne)
	s.Read(&a.expiry, `SELECT min(expires_at) FROM approvals WHERE state = 'pending' AND expires_at IS NOT NULL`)
	s.Read(&a.list, `SELECT scope, key, behavior, rule, source, at, trust FROM rules WHERE key = ? ORDER BY scope DESC, number`)
	s.Join(db.Member{
		Committed: func() {
			a.ruled.drop(a.changed)
			a.changed = a.changed[:0]
		},
		Undone: func() { a.changed = a.changed[:0] },
		Forget: a.ruled.forget,
	})
	return a
}

// approvalRow is a row of the table approvals, as read. It has plain strings where
// holdfast.Approval has named types, because database/sql scans named types slowly.
type approvalRow struct {
	to                              holdfast.Approval
	number                          int64
	id, session, turn, state, scope string
	input                           []byte
	suggestions                     string
	asked                           int64
	expires, answered               sql.NullInt64
}

// pending returns the scan destinations of pendingCols.
func (r *approvalRow) pending() []any {
	return []any{
		&r.number, &r.id, &r.session, &r.turn, &r.to.ToolUseID, &r.to.Tool, &r.input, &r.to.InputHash, &r.to.By,
		&r.to.Rule, &r.to.Reason, &r.suggestions, &r.asked, &r.expires,
	}
}

// noSuggestions is the stored form of an empty list of suggestions, the usual case.
const noSuggestions = "[]"

func encodeSuggestions(list []string) string {
	if len(list) == 0 {
		return noSuggestions
	}
	raw, _ := json.Marshal(list) // the error is ignored: a list of texts can always be encoded
	return string(raw)
}

// approval returns the row as an Approval.
func (r *approvalRow) approval() (holdfast.Approval, error) {
	a := r.to
	a.ID, a.Session, a.Turn, a.Input = holdfast.ApprovalID(r.id), holdfast.SessionID(r.session), holdfast.TurnID(r.turn), r.input
	a.State, a.Scope = holdfast.ApprovalState(r.state), holdfast.ApprovalScope(r.scope)
	a.AskedAt, a.ExpiresAt, a.AnsweredAt = db.FromMS(r.asked), db.FromNullMS(r.expires), db.FromNullMS(r.answered)
	if r.suggestions == noSuggestions {
		return a, nil
	}
	if err := json.Unmarshal([]byte(r.suggestions), &a.Suggestions); err != nil {
		return a, holdfast.Errorf(holdfast.KindInternal, "store.approval", "the stored rule suggestions of approval %s cannot be decoded: %w", a.ID, err)
	}
	return a, nil
}

// all returns the scan destinations of approvalCols.
func (r *approvalRow) all() []any {
	return append(r.pending(), &r.state, &r.answered, &r.to.AnsweredBy, &r.scope, &r.to.Answer)
}

// scanApproval reads a row of approvalCols.
func scanApproval(sc db.Scanner) (holdfast.Approval, error) {
	var r approvalRow
	if err := sc.Scan(r.all()...); err != nil {
		return holdfast.Approval{}, err
	}
	return r.approval()
}

// load reads an approval within the transaction. It returns false for an unknown one.
func (a *Approvals) load(t *db.Tx, id holdfast.ApprovalID) (holdfast.Approval, bool, error) {
	found, err := scanApproval(a.get.QueryRowContext(t.Ctx, id))
	ok, err := db.Found(err)
	return found, ok, err
}

// write stores the approvals and rules that a change to a session contains.
func (a *Approvals) write(t *db.Tx, row *journal.Row, c *journal.Encoded) error {
	for _, ac := range c.Approvals {
		t.Pages += 4
		var err error
		if ask := ac.Ask; ask != nil {
			t.Pages += len(ask.Input) / db.PageSize
			asked := t.NowMS
			if !ask.AskedAt.IsZero() {
				asked = ask.AskedAt.UnixMilli()
			}
			_, err = a.put.ExecContext(t.Ctx, ask.ID, row.Number, row.ID, ask.Turn, ask.ToolUseID, ask.Tool, []byte(ask.Input),
				ask.InputHash, ask.By, ask.Rule, ask.Reason, encodeSuggestions(ask.Suggestions), asked, db.ToNullMS(ask.ExpiresAt))
		} else {
			_, err = a.end.ExecContext(t.Ctx, ac.To, t.NowMS, ac.By, ac.Scope, ac.Answer, ac.ID)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range c.Rules {
		t.Pages += 2
		a.changed = append(a.changed, r.Key)
		var err error
		if r.Removed {
			_, err = a.removeRule.ExecContext(t.Ctx, r.Key, r.Scope, r.Behavior, r.Rule)
		} else {
			_, err = a.putRule.ExecContext(t.Ctx, r.Scope, r.Key, r.Behavior, r.Rule, r.Source, t.NowMS, row.Trust)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteSession removes the approvals and rules of a session.
func (a *Approvals) deleteSession(t *db.Tx, row *journal.Row) error {
	if _, err := a.remove.ExecContext(t.Ctx, row.Number); err != nil {
		return err
	}
	return a.RemoveRules(t, string(row.ID))
}

// RemoveRules removes all rules of a key.
func (a *Approvals) RemoveRules(t *db.Tx, key string) error {
	a.changed = append(a.changed, key)
	_, err := a.removeRules.ExecContext(t.Ctx, key)
	return err
}

// Approval returns one approval; not_found for an unknown id.
func (a *Approvals) Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	found, err := scanApproval(a.one.QueryRowContext(ctx, id))
	return found, db.RowError("store.approval", err, func() error { return journal.NoApproval(id) })
}

// Approvals returns a page of the approvals that q selects, oldest first. A page also ends once
// the tool inputs in it reach 4 MiB.
func (a *Approvals) Approvals(ctx context.Context, q journal.ApprovalQuery) (journal.ApprovalPage, error) {
	if q.Limit < 0 || q.Limit > 1000 {
		return journal.ApprovalPage{}, holdfast.Errorf(holdfast.KindInvalid, "store.approvals",
			"the limit of approvals, %q, is not between 1 and 1000", strconv.Itoa(q.Limit))
	}
	limit := db.Limit(q.Limit, 50, 1000)
	where, args, err := a.filter(ctx, q)
	if err != nil {
		return journal.ApprovalPage{}, err
	}
	var r approvalRow
	cols, dst := approvalCols, r.all()
	if q.State == holdfast.ApprovalPending {
		cols, dst = pendingCols, r.pending()
	}
	rows, err := a.db.Reads().QueryContext(ctx, `SELECT `+cols+` FROM approvals`+where+` ORDER BY number LIMIT ?`,
		append(args, limit+1)...)
	if err != nil {
		return journal.ApprovalPage{}, db.Failure("store.approvals", err)
	}
	defer rows.Close()
	p := journal.ApprovalPage{Approvals: make([]holdfast.Approval, 0, limit)}
	var last int64
	size := 0
	for rows.Next() {
		r = approvalRow{state: string(holdfast.ApprovalPending)}
		if err := rows.Scan(dst...); err != nil {
			return journal.ApprovalPage{}, db.Failure("store.approvals", err)
		}
		if len(p.Approvals) == limit {
			p.Next = db.EncodeCursor('a', last)
			break
		}
		one, err := r.approval()
		if err != nil {
			return journal.ApprovalPage{}, db.Failure("store.approvals", err)
		}
		p.Approvals, last = append(p.Approvals, one), r.number
		if size += len(r.input); size >= pageBytes {
			p.Next = db.EncodeCursor('a', last)
			break
		}
	}
	if err := rows.Err(); err != nil {
		return journal.ApprovalPage{}, db.Failure("store.approvals", err)
	}
	return p, nil
}

// filter returns the SQL WHERE clause for q and its arguments. The clause is empty if q selects all approvals.
func (a *Approvals) filter(ctx context.Context, q journal.ApprovalQuery) (string, []any, error) {
	var conds []string
	var args []any
	add := func(cond string, values ...any) {
		conds, args = append(conds, cond), append(args, values...)
	}
	switch {
	case q.State == holdfast.ApprovalPending:
		// A literal instead of a parameter lets SQLite use the partial index.
		add(`state = 'pending'`)
	case q.State != "":
		add(`state = ?`, string(q.State))
	}
	if q.Session != "" {
		n, err := a.rows.numberOf(ctx, q.Session)
		if err != nil {
			return "", nil, err
		}
		add(`session = ?`, n)
	}
	if p := strings.ToLower(q.IDPrefix); p != "" {
		add(`id >= ? AND id < ?`, p, p+"~")
	}
	if q.Turn != "" {
		add(`turn = ?`, string(q.Turn))
		if q.ToolUse != "" {
			add(`tool_use = ?`, q.ToolUse)
		}
	}
	if !q.Due.IsZero() {
		add(`expires_at IS NOT NULL AND expires_at <= ?`, q.Due.UnixMilli())
	}
	if q.Cursor != "" {
		n, err := db.DecodeCursor('a', q.Cursor)
		if err != nil {
			return "", nil, err
		}
		add(`number > ?`, n)
	}
	if len(conds) == 0 {
		return "", nil, nil
	}
	return ` WHERE ` + strings.Join(conds, ` AND `), args, nil
}

// NextExpiry returns the earliest time at which a pending approval expires; the zero time if none
// expires.
func (a *Approvals) NextExpiry(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	if err := a.expiry.QueryRowContext(ctx).Scan(&at); err != nil {
		return time.Time{}, db.Failure("store.approvals", err)
	}
	if !at.Valid {
		return time.Time{}, nil
	}
	return db.FromMS(at.Int64), nil
}

// Rules returns the permission rules stored under a key, such as a session id.
func (a *Approvals) Rules(ctx context.Context, key string) ([]journal.Rule, error) {
	if err := ctx.Err(); err != nil {
		return nil, db.Failure("store.rules", err)
	}
	list, ok, at := a.ruled.get(key)
	if !ok {
		var err error
		if list, err = a.readRules(ctx, key); err != nil {
			return nil, err
		}
		a.ruled.keep(key, list, at)
	}
	return slices.Clone(list), nil
}

// Changes returns a number that grows whenever the rules of any key may have changed.
func (a *Approvals) Changes() int64 { return a.ruled.count() }

func (a *Approvals) readRules(ctx context.Context, key string) ([]journal.Rule, error) {
	rows, err := a.list.QueryContext(ctx, key)
	return db.Collect("store.rules", rows, err, func(sc db.Scanner) (r journal.Rule, err error) {
		var at int64
		err = sc.Scan(&r.Scope, &r.Key, &r.Behavior, &r.Rule, &r.Source, &at, &r.Trust)
		r.At = db.FromMS(at)
		return r, err
	})
}
