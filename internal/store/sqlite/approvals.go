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
)

const (
	// Each column takes a third of a microsecond: a list of what is pending leaves
	// out those that an answer fills.
	pendingCols = `number, id, session_id, turn, tool_use, tool, input, input_hash, asked_by, rule, reason, suggestions,
		asked_at, expires_at`
	approvalCols = pendingCols + `, state, answered_at, answered_by, scope, answer`
	approvalOne  = `SELECT ` + approvalCols + ` FROM approvals WHERE id = ?`
	ruleList     = `SELECT scope, key, behavior, rule, source, at FROM rules WHERE key = ? ORDER BY scope DESC, number`
)

// approvalStmts are the writer's.
type approvalStmts struct {
	get, put, end, delete           *sql.Stmt
	putRule, removeRule, deleteRule *sql.Stmt
}

func (w *writeStmts) prepareApprovals(p *preparer) {
	a := &w.approvals
	p.add(&a.get, approvalOne)
	p.add(&a.put, `INSERT INTO approvals (id, session, session_id, turn, tool_use, tool, input, input_hash, asked_by,
		rule, reason, suggestions, state, asked_at, expires_at, answered_by, scope, answer)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,'pending',?,?,'','','')`)
	p.add(&a.end, `UPDATE approvals SET state = ?, answered_at = ?, answered_by = ?, scope = ?, answer = ?
		WHERE id = ? AND state = 'pending'`)
	p.add(&a.delete, `DELETE FROM approvals WHERE session = ?`)
	p.add(&a.putRule, `INSERT INTO rules (scope, key, behavior, rule, source, at) VALUES (?,?,?,?,?,?)
		ON CONFLICT DO NOTHING`)
	p.add(&a.removeRule, `DELETE FROM rules WHERE key = ? AND scope = ? AND behavior = ? AND rule = ?`)
	p.add(&a.deleteRule, `DELETE FROM rules WHERE key = ?`)
}

// approvalRow is a row on its way. Plain strings are what database/sql is fast at.
type approvalRow struct {
	holdfast.Approval
	number                          int64
	id, session, turn, state, scope string
	input                           []byte
	suggestions                     string
	asked                           int64
	expires, answered               sql.NullInt64
}

// pending is where pendingCols go.
func (r *approvalRow) pending() []any {
	return []any{
		&r.number, &r.id, &r.session, &r.turn, &r.ToolUseID, &r.Tool, &r.input, &r.InputHash, &r.By, &r.Rule, &r.Reason,
		&r.suggestions, &r.asked, &r.expires,
	}
}

// noSuggestions is what most approvals have.
const noSuggestions = "[]"

func encodeSuggestions(list []string) string {
	if len(list) == 0 {
		return noSuggestions
	}
	raw, _ := json.Marshal(list) // texts always encode
	return string(raw)
}

func (r *approvalRow) approval() (holdfast.Approval, error) {
	a := r.Approval
	a.ID, a.Session, a.Turn, a.Input = holdfast.ApprovalID(r.id), holdfast.SessionID(r.session), holdfast.TurnID(r.turn), r.input
	a.State, a.Scope = holdfast.ApprovalState(r.state), holdfast.ApprovalScope(r.scope)
	a.AskedAt, a.ExpiresAt, a.AnsweredAt = fromMS(r.asked), fromNullMS(r.expires), fromNullMS(r.answered)
	if r.suggestions == noSuggestions {
		return a, nil
	}
	if err := json.Unmarshal([]byte(r.suggestions), &a.Suggestions); err != nil {
		return a, holdfast.Errorf(holdfast.KindInternal, "store.approval", "suggestions of %s: %w", a.ID, err)
	}
	return a, nil
}

// all is where approvalCols go.
func (r *approvalRow) all() []any {
	return append(r.pending(), &r.state, &r.answered, &r.AnsweredBy, &r.scope, &r.Answer)
}

// scanApproval reads approvalCols.
func scanApproval(sc scanner) (holdfast.Approval, int64, error) {
	var r approvalRow
	if err := sc.Scan(r.all()...); err != nil {
		return holdfast.Approval{}, 0, err
	}
	a, err := r.approval()
	return a, r.number, err
}

func (c *change) applyApprovals(t *tx) error {
	st := &t.s.w.approvals
	for _, ac := range c.Approvals {
		t.pages += 4
		var err error
		if a := ac.Ask; a != nil {
			t.pages += len(a.Input) / pageSize
			asked := t.nowMS
			if !a.AskedAt.IsZero() {
				asked = a.AskedAt.UnixMilli()
			}
			_, err = st.put.ExecContext(t.ctx, a.ID, c.planned.Row.Number, c.Session, a.Turn, a.ToolUseID, a.Tool, []byte(a.Input),
				a.InputHash, a.By, a.Rule, a.Reason, encodeSuggestions(a.Suggestions), asked, toNullMS(a.ExpiresAt))
		} else {
			_, err = st.end.ExecContext(t.ctx, ac.To, t.nowMS, ac.By, ac.Scope, ac.Answer, ac.ID)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range c.Rules {
		t.pages += 2
		t.ruled = append(t.ruled, r.Key)
		var err error
		if r.Removed {
			_, err = st.removeRule.ExecContext(t.ctx, r.Key, r.Scope, r.Behavior, r.Rule)
		} else {
			_, err = st.putRule.ExecContext(t.ctx, r.Scope, r.Key, r.Behavior, r.Rule, r.Source, t.nowMS)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Approval implements engine.Store.
func (s *Store) Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	a, _, err := scanApproval(s.r.approval.QueryRowContext(ctx, id))
	ok, err := found(err)
	if err != nil {
		return a, failure("store.approval", err)
	}
	if !ok {
		return a, journal.NoApproval(id)
	}
	return a, nil
}

// Approvals implements engine.Store.
func (s *Store) Approvals(ctx context.Context, q journal.ApprovalQuery) (journal.ApprovalPage, error) {
	if q.Limit < 0 || q.Limit > 1000 {
		return journal.ApprovalPage{}, holdfast.Errorf(holdfast.KindInvalid, "store.approvals",
			"limit %q is not between 1 and 1000", strconv.Itoa(q.Limit))
	}
	limit := clampLimit(q.Limit, 50, 1000)
	where, args, err := s.filterApprovals(ctx, q)
	if err != nil {
		return journal.ApprovalPage{}, err
	}
	var r approvalRow
	cols, dst := approvalCols, r.all()
	if q.State == holdfast.ApprovalPending {
		cols, dst = pendingCols, r.pending()
	}
	rows, err := s.readDB.QueryContext(ctx, `SELECT `+cols+` FROM approvals`+where+` ORDER BY number LIMIT ?`, append(args, limit+1)...)
	if err != nil {
		return journal.ApprovalPage{}, failure("store.approvals", err)
	}
	defer rows.Close()
	p := journal.ApprovalPage{Approvals: make([]holdfast.Approval, 0, limit)}
	var last int64
	size := 0
	for rows.Next() {
		r = approvalRow{state: string(holdfast.ApprovalPending)}
		if err := rows.Scan(dst...); err != nil {
			return journal.ApprovalPage{}, failure("store.approvals", err)
		}
		if len(p.Approvals) == limit {
			p.Next = encodeCursor('a', last)
			break
		}
		a, err := r.approval()
		if err != nil {
			return journal.ApprovalPage{}, failure("store.approvals", err)
		}
		p.Approvals, last = append(p.Approvals, a), r.number
		if size += len(r.input); size >= pageBytes {
			p.Next = encodeCursor('a', last)
			break
		}
	}
	if err := rows.Err(); err != nil {
		return journal.ApprovalPage{}, failure("store.approvals", err)
	}
	return p, nil
}

func (s *Store) filterApprovals(ctx context.Context, q journal.ApprovalQuery) (string, []any, error) {
	var conds []string
	var args []any
	add := func(cond string, values ...any) {
		conds, args = append(conds, cond), append(args, values...)
	}
	switch {
	case q.State == holdfast.ApprovalPending:
		// The text lets the partial index be used.
		add(`state = 'pending'`)
	case q.State != "":
		add(`state = ?`, string(q.State))
	}
	if q.Session != "" {
		n, err := s.number(ctx, q.Session)
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
		n, err := decodeCursor('a', q.Cursor)
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

// NextExpiry implements engine.Store.
func (s *Store) NextExpiry(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	if err := s.r.expiry.QueryRowContext(ctx).Scan(&at); err != nil {
		return time.Time{}, failure("store.approvals", err)
	}
	if !at.Valid {
		return time.Time{}, nil
	}
	return fromMS(at.Int64), nil
}

// Rules implements engine.Store.
func (s *Store) Rules(ctx context.Context, key string) ([]journal.Rule, error) {
	if err := ctx.Err(); err != nil {
		return nil, failure("store.rules", err)
	}
	list, ok, at := s.recent.ruled(key)
	if !ok {
		var err error
		if list, err = s.readRules(ctx, key); err != nil {
			return nil, err
		}
		s.recent.keep(key, list, at)
	}
	return slices.Clone(list), nil
}

func (s *Store) readRules(ctx context.Context, key string) ([]journal.Rule, error) {
	rows, err := s.r.rules.QueryContext(ctx, key)
	if err != nil {
		return nil, failure("store.rules", err)
	}
	defer rows.Close()
	var out []journal.Rule
	for rows.Next() {
		var r journal.Rule
		var at int64
		if err := rows.Scan(&r.Scope, &r.Key, &r.Behavior, &r.Rule, &r.Source, &at); err != nil {
			return nil, failure("store.rules", err)
		}
		r.At = fromMS(at)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.rules", err)
	}
	return out, nil
}
