package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const (
	rowCols = `number, id, status, agent, agent_version, trust, runtime, model, mode, title, tags, env,
		sealed_env, error, revision, completed_turns, last_turn, files_seeded, had_files, created_at, last_active_at,
		spent, budget, box_uid, network, source, purge_at, workspace, mount, bounds`
	// lastSeq is the SQL expression for the key of the newest event of a row of sessions.
	lastSeq = `(SELECT max(id) FROM events WHERE id BETWEEN sessions.number << 32 AND sessions.number << 32 | 4294967295)`
)

// rows is the table of sessions. It caches recently written rows, for the writer and for readers.
type rows struct {
	events *events
	// cache holds rows for the writer, including changes of the open transaction; touched are
	// the sessions that this transaction has changed. recent holds committed rows for readers.
	cache   *cache
	touched []holdfast.SessionID
	recent  recent

	get, insert, touch, update, remove *sql.Stmt
	one, number, head, workspace       *sql.Stmt
}

func newRows(s *db.Setup, e *events) *rows {
	r := &rows{events: e, cache: newCache()}
	s.Write(&r.get, `SELECT `+rowCols+`, `+lastSeq+` FROM sessions WHERE id = ?`)
	s.Write(&r.insert, `INSERT INTO sessions (id, status, agent, agent_version, trust, runtime, model, mode,
		title, title_fold, tags, env, sealed_env, error, revision, completed_turns, last_turn, files_seeded,
		had_files, create_key, created_at, last_active_at, spent, budget, box_uid, network, source, workspace, mount, bounds)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`)
	s.Write(&r.touch, `UPDATE sessions SET revision = ?, completed_turns = ?, last_turn = ?, last_active_at = ?,
		spent = ? WHERE number = ?`)
	s.Write(&r.update, `UPDATE sessions SET revision = ?, completed_turns = ?, last_turn = ?, last_active_at = ?,
		spent = ?, budget = ?, status = ?, trust = ?, runtime = ?, model = ?, mode = ?, title = ?, title_fold = ?, tags = ?,
		error = ?, files_seeded = ?, had_files = ?, box_uid = ?, network = ?, source = ?, purge_at = ?, workspace = ?, mount = ?, bounds = ? WHERE number = ?`)
	s.Write(&r.remove, `DELETE FROM sessions WHERE number = ? RETURNING create_key`)
	s.Write(&r.workspace, `SELECT 1 FROM workspaces WHERE slug = ? AND deleting = 0`)
	s.Read(&r.one, `SELECT `+rowCols+`, `+lastSeq+` FROM sessions WHERE id = ?`)
	s.Read(&r.number, `SELECT number FROM sessions WHERE id = ?`)
	s.Read(&r.head, `SELECT `+lastSeq+` FROM sessions WHERE id = ?`)
	return r
}

// load returns the row of a session within the transaction; nil for an unknown session. The
// caller must not change the row.
func (r *rows) load(t *db.Tx, id holdfast.SessionID) (*journal.Row, error) {
	if row := r.cache.get(id); row != nil {
		return row, nil
	}
	// The query reads the newest sequence number from the table events, so waiting events have to
	// be inserted first.
	if err := r.events.flush(t); err != nil {
		return nil, err
	}
	row, err := scanRow(r.get.QueryRowContext(t.Ctx, id))
	if ok, err := db.Found(err); !ok {
		return nil, err
	}
	return &row, nil
}

// write marks a session as touched and, if the plan changes the session's row, writes the row in the
// transaction. For a new session it sets the row's Number. key is the idempotency key of the change, or nil.
func (r *rows) write(t *db.Tx, p *journal.Plan, created bool, key *journal.Key) error {
	row := &p.Row
	r.touched = append(r.touched, row.ID)
	if !p.Touched {
		return nil
	}
	t.Pages += 2
	spent, budget, err := encodeSpent(row)
	if err != nil {
		return err
	}
	if !p.Patched {
		_, err := r.touch.ExecContext(t.Ctx, row.Revision, row.CompletedTurns, row.LastTurn,
			row.LastActiveAt.UnixMilli(), spent, row.Number)
		return err
	}
	tags, err := encodeTags(row.Tags)
	if err != nil {
		return err
	}
	if !created {
		_, err := r.update.ExecContext(t.Ctx, row.Revision, row.CompletedTurns, row.LastTurn,
			row.LastActiveAt.UnixMilli(), spent, budget, row.Status, row.Trust, row.Runtime, row.Model, row.Mode,
			row.Title, strings.ToLower(row.Title), tags, row.Error, row.FilesSeeded, row.HadFiles, row.BoxUID,
			encodeNetwork(row.Network), encoded(row.Source), db.ToNullMS(row.PurgeAt), orNull(row.Workspace), row.Mount, encoded(row.Given.Bounds), row.Number)
		return err
	}
	env, err := encodeEnv(row.Env)
	if err != nil {
		return err
	}
	var createKey *string
	if key != nil {
		createKey = &key.Value
	}
	t.Pages += 3
	res, err := r.insert.ExecContext(t.Ctx, row.ID, row.Status, row.Agent, row.AgentVersion, row.Trust, row.Runtime,
		row.Model, row.Mode, row.Title, strings.ToLower(row.Title), tags, env, row.Given.SealedEnv, row.Error, row.Revision,
		row.CompletedTurns, row.LastTurn, row.FilesSeeded, row.HadFiles, createKey, row.CreatedAt.UnixMilli(),
		row.LastActiveAt.UnixMilli(), spent, budget, row.BoxUID, encodeNetwork(row.Network), encoded(row.Source), orNull(row.Workspace), row.Mount,
		encoded(row.Given.Bounds))
	if err != nil {
		return err
	}
	row.Number, err = res.LastInsertId()
	return err
}

// delete removes the row of a session. It returns the idempotency key of the request that created the
// session, null if the request had no key.
func (r *rows) delete(t *db.Tx, row *journal.Row) (key sql.NullString, err error) {
	r.cache.drop(row.ID)
	r.touched = append(r.touched, row.ID)
	err = r.remove.QueryRowContext(t.Ctx, row.Number).Scan(&key)
	return key, err
}

// hide removes the rows that the transaction changed from recent, so that readers take them from the
// database; committed adds them again. Otherwise a reader could get, say, a turn from after the transaction
// with the row of its session from before it.
func (r *rows) hide() { r.recent.drop(r.touched) }

// committed stores the rows that the transaction changed in recent, for readers, and returns the
// ids of their sessions.
func (r *rows) committed() []holdfast.SessionID {
	touched := r.touched
	r.recent.put(touched, r.cache.get)
	r.touched = r.touched[:0]
	return touched
}

// undone removes from the cache the rows that a rolled-back transaction had changed.
func (r *rows) undone() {
	for _, id := range r.touched {
		r.cache.drop(id)
	}
	r.touched = r.touched[:0]
}

// forget empties the two caches of rows: that of the writer and that of readers.
func (r *rows) forget() {
	r.cache.reset()
	r.recent.forget()
}

// lately returns the row of a session from recent, or nil if it is not there or ctx has ended. The caller
// must not change the row.
func (r *rows) lately(ctx context.Context, id holdfast.SessionID) *journal.Row {
	if ctx.Err() != nil {
		return nil
	}
	return r.recent.get(id)
}

// numberOf returns the number of a session, its key in the database; not_found for an unknown
// session.
func (r *rows) numberOf(ctx context.Context, id holdfast.SessionID) (int64, error) {
	if row := r.lately(ctx, id); row != nil {
		return row.Number, nil
	}
	var n int64
	err := r.number.QueryRowContext(ctx, id).Scan(&n)
	return n, db.RowError("store.session", err, func() error { return journal.NoSession(id) })
}

// scanID reads a row that has only the id of a session.
func scanID(sc db.Scanner) (id holdfast.SessionID, err error) {
	err = sc.Scan(&id)
	return id, err
}

// scanRow reads a row of rowCols and lastSeq.
func scanRow(sc db.Scanner) (journal.Row, error) {
	var r journal.Row
	var created, active int64
	var last, purge sql.NullInt64
	var tags, env, spent, budget, network, source, workspace, bounds sql.NullString
	err := sc.Scan(&r.Number, &r.ID, &r.Status, &r.Agent, &r.AgentVersion, &r.Trust, &r.Runtime, &r.Model, &r.Mode,
		&r.Title, &tags, &env, &r.Given.SealedEnv, &r.Error, &r.Revision, &r.CompletedTurns, &r.LastTurn, &r.FilesSeeded,
		&r.HadFiles, &created, &active, &spent, &budget, &r.BoxUID, &network, &source, &purge, &workspace, &r.Mount, &bounds, &last)
	if err != nil {
		return r, err
	}
	r.CreatedAt, r.LastActiveAt, r.LastSeq = db.FromMS(created), db.FromMS(active), last.Int64&journal.MaxSeq
	r.PurgeAt, r.Workspace = db.FromNullMS(purge), holdfast.Slug(workspace.String)
	spent.Valid, budget.Valid = spent.String != "", budget.String != ""
	var names []string
	var limits budgets
	for _, col := range []struct {
		text  sql.NullString
		to    any
		fault string
	}{
		{tags, &r.Tags, "the stored tags of session %s cannot be decoded: %w"},
		{bounds, &r.Given.Bounds, "the stored bounds of session %s cannot be decoded: %w"},
		{env, &names, "the stored environment names of session %s cannot be decoded: %w"},
		{spent, &r.Spent, "the stored usage of session %s cannot be decoded: %w"},
		{budget, &limits, "the stored budgets of session %s cannot be decoded: %w"},
		{network, &r.Network, "the stored network destinations of session %s cannot be decoded: %w"},
		{source, &r.Source, "the stored source of session %s cannot be decoded: %w"},
	} {
		if !col.text.Valid {
			continue
		}
		if err := json.Unmarshal([]byte(col.text.String), col.to); err != nil {
			return r, holdfast.Errorf(holdfast.KindInternal, "store.row", col.fault, r.ID, err)
		}
	}
	r.Budget, r.TurnBudget = limits.Session, limits.Turn
	if len(names) > 0 {
		r.Env = make(map[string]string, len(names))
		for _, n := range names {
			r.Env[n] = "***"
		}
	}
	return r, nil
}

// encoded returns a value in its stored form; nil becomes null.
func encoded[T any](v *T) *string {
	if v == nil {
		return nil
	}
	raw, _ := json.Marshal(v) // the error is ignored: texts, flags, lists and maps can always be encoded
	return new(string(raw))
}

// orNull returns a text as it is stored: an empty text becomes null.
func orNull[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// encodeNetwork returns a list of destinations in its stored form; nil becomes null.
func encodeNetwork(list []string) *string {
	if list == nil {
		return nil
	}
	return encoded(&list)
}

// budgets is the stored form of a session's budgets.
type budgets struct {
	Session *holdfast.Budget `json:"session,omitempty"`
	Turn    *holdfast.Budget `json:"turn,omitempty"`
}

func encodeSpent(r *journal.Row) (spent, budget string, err error) {
	if r.Spent != (holdfast.Spent{}) {
		b, err := json.Marshal(r.Spent)
		if err != nil {
			return "", "", err
		}
		spent = string(b)
	}
	if r.Budget != nil || r.TurnBudget != nil {
		b, err := json.Marshal(budgets{r.Budget, r.TurnBudget})
		if err != nil {
			return "", "", err
		}
		budget = string(b)
	}
	return spent, budget, nil
}

func encodeTags(tags []string) (string, error) {
	if tags == nil {
		tags = []string{}
	}
	b, err := json.Marshal(tags)
	return string(b), err
}

// encodeEnv returns the stored form of an environment: only its names. Its values are in the column
// sealed_env.
func encodeEnv(env map[string]string) (string, error) {
	return encodeTags(slices.Sorted(maps.Keys(env)))
}
