package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

const (
	rowCols = `number, id, status, agent, agent_version, trust, runtime, model, mode, title, tags, env,
		sealed_env, error, revision, completed_turns, last_turn, files_seeded, had_files, created_at, last_active_at,
		spent, budget, box_uid, network, source`
	// lastSeq is the newest sequence number of a row of sessions.
	lastSeq   = `(SELECT max(id) FROM events WHERE id BETWEEN sessions.number << 32 AND sessions.number << 32 | 4294967295)`
	turnCols  = `id, session, number, status, message_seq, end_seq, created_at, started_at, ended_at`
	eventCols = `(?,?,?,?,?,?,?)`
	keyQuery  = `SELECT hash, ref FROM idempotency WHERE scope = ? AND value = ?`
)

// eventSlots are the sizes of prepared inserts of events, largest first.
var eventSlots = [...]int{32, 8, 2, 1}

type writeStmts struct {
	begin, commit, rollback, epoch, version *sql.Stmt

	row                            *sql.Stmt
	insertRow, touchRow, updateRow *sql.Stmt
	turnGet, turnPut, turnUpdate   *sql.Stmt
	insertEvents                   [len(eventSlots)]*sql.Stmt

	deleteRow, deleteTurns                    *sql.Stmt
	purgePut, purgeNext, purgeSome, purgeDone *sql.Stmt

	admin struct {
		agents agentStmts
		keys   apiKeyStmts

		secrets secretStmts
	}
	search    searchStmts
	keys      keyStmts
	approvals approvalStmts
	besideWrites

	all []*sql.Stmt
}

// besideWrites are of what is written beside the events of a change.
type besideWrites struct {
	states stateStmts
	audit  auditWrites
	outbox outboxWrites
}

// secretReads are of the credential store.
type secretReads struct{ secrets, secret *sql.Stmt }

// close finalizes the statements. database/sql does not do so for statements of
// a single connection, and a connection with open statements stays open.
func (w *writeStmts) close() error {
	var errs []error
	for _, st := range w.all {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

type keyStmts struct {
	get, put, delete, deleteScope *sql.Stmt
}

type searchStmts struct {
	put, delete, purge, seen, forget *sql.Stmt
}

type agentStmts struct {
	get, put, update, delete, putVersion, lastVersion *sql.Stmt
}

func prepareWrites(ctx context.Context, conn *sql.Conn) (*writeStmts, error) {
	w := &writeStmts{}
	p := preparer{ctx: ctx, prepare: conn.PrepareContext}
	p.add(&w.begin, `BEGIN IMMEDIATE`)
	p.add(&w.commit, `COMMIT`)
	p.add(&w.rollback, `ROLLBACK`)
	p.add(&w.epoch, `SELECT epoch FROM server WHERE id = 1`)
	p.add(&w.version, `PRAGMA data_version`)

	p.add(&w.row, `SELECT `+rowCols+`, `+lastSeq+` FROM sessions WHERE id = ?`)
	p.add(&w.keys.get, keyQuery)
	p.add(&w.keys.put, `INSERT INTO idempotency (scope, value, hash, ref, at) VALUES (?,?,?,?,?)`)
	p.add(&w.insertRow, `INSERT INTO sessions (id, status, agent, agent_version, trust, runtime, model, mode,
		title, title_fold, tags, env, sealed_env, error, revision, completed_turns, last_turn, files_seeded,
		had_files, create_key, created_at, last_active_at, spent, budget, box_uid, network, source)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`)
	p.add(&w.touchRow, `UPDATE sessions SET revision = ?, completed_turns = ?, last_turn = ?, last_active_at = ?,
		spent = ? WHERE number = ?`)
	p.add(&w.updateRow, `UPDATE sessions SET revision = ?, completed_turns = ?, last_turn = ?, last_active_at = ?,
		spent = ?, budget = ?, status = ?, trust = ?, runtime = ?, model = ?, mode = ?, title = ?, title_fold = ?, tags = ?, error = ?,
		files_seeded = ?, had_files = ?, box_uid = ?, network = ?, source = ? WHERE number = ?`)
	p.add(&w.turnGet, `SELECT `+turnCols+` FROM turns WHERE id = ?`)
	p.add(&w.turnPut, `INSERT INTO turns (`+turnCols+`) VALUES (?,?,?,?,?,?,?,?,?)`)
	p.add(&w.turnUpdate, `UPDATE turns SET status = ?, message_seq = ?, end_seq = ?, started_at = ?, ended_at = ?
		WHERE session = ? AND number = ?`)
	for i, n := range eventSlots {
		p.add(&w.insertEvents[i], `INSERT INTO events (id, type, turn, at, data, sum, agent) VALUES `+
			repeated(eventCols, n))
	}

	p.add(&w.deleteRow, `DELETE FROM sessions WHERE number = ? RETURNING create_key`)
	p.add(&w.deleteTurns, `DELETE FROM turns WHERE session = ?`)
	p.add(&w.keys.deleteScope, `DELETE FROM idempotency WHERE scope = ?`)
	p.add(&w.keys.delete, `DELETE FROM idempotency WHERE scope = 'session.create' AND value = ? AND ref = ?`)
	p.add(&w.purgePut, `INSERT INTO purge (session) VALUES (?)`)
	p.add(&w.purgeNext, `SELECT session FROM purge LIMIT 1`)
	p.add(&w.purgeSome, `DELETE FROM events WHERE id IN
		(SELECT id FROM events WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?)`)
	p.add(&w.purgeDone, `DELETE FROM purge WHERE session = ?`)

	p.add(&w.search.put, `INSERT INTO search (rowid, text) VALUES (?,?)`)
	p.add(&w.search.delete, `DELETE FROM search WHERE rowid = ?`)
	p.add(&w.search.purge, `DELETE FROM search WHERE rowid IN
		(SELECT rowid FROM search WHERE rowid BETWEEN ? AND ? LIMIT ?)`)
	p.add(&w.search.seen, `INSERT INTO search_seen (session, seq) VALUES (?,?)
		ON CONFLICT (session) DO UPDATE SET seq = excluded.seq`)
	p.add(&w.search.forget, `DELETE FROM search_seen WHERE session = ?`)

	p.add(&w.admin.agents.get, `SELECT `+agentCols+`, deleted, own_description, own_model, own_mode FROM agents WHERE name = ?`)
	p.add(&w.admin.agents.put, `INSERT INTO agents (name, version, version_id, runtime, description, model, mode, deleted, created_at, updated_at)
		VALUES (?,?,?,?,?,?,?,0,?,?) ON CONFLICT (name) DO UPDATE SET version = excluded.version,
		version_id = excluded.version_id, runtime = excluded.runtime, description = excluded.description,
		model = excluded.model, mode = excluded.mode, own_description = iif(deleted, '', own_description),
		own_model = iif(deleted, '', own_model), own_mode = iif(deleted, '', own_mode), deleted = 0,
		created_at = excluded.created_at, updated_at = excluded.updated_at`)
	p.add(&w.admin.agents.delete, `UPDATE agents SET deleted = 1, updated_at = ? WHERE name = ?`)
	p.add(&w.admin.agents.update, `UPDATE agents SET own_description = ?, own_model = ?, own_mode = ?, updated_at = ? WHERE name = ?`)
	p.add(&w.admin.agents.putVersion, `INSERT INTO agent_versions (agent, number, id, files, settings, created_at) VALUES (?,?,?,?,?,?)`)
	p.add(&w.admin.agents.lastVersion, `SELECT coalesce(max(number), 0) FROM agent_versions WHERE agent = ?`)
	w.prepareKeys(&p)
	w.prepareSecrets(&p)
	w.prepareStates(&p)
	w.prepareApprovals(&p)
	w.prepareAudit(&p)
	w.prepareOutbox(&p)
	w.all = p.done
	return w, p.err
}

type readStmts struct {
	row, number, head, events            *sql.Stmt
	key, search, seen, behind            *sql.Stmt
	turn, turns, open, openAll, starting *sql.Stmt
	agent, agents                        *sql.Stmt
	versionByNumber, versionByID         *sql.Stmt
	versions, apiKeys                    *sql.Stmt
	secretReads
	approval, expiry, rules *sql.Stmt
	besideReads
}

// besideReads are of what besideWrites write.
type besideReads struct {
	states *sql.Stmt
	audit  auditReads
	outbox outboxReads
}

func prepareReads(ctx context.Context, db *sql.DB) (*readStmts, error) {
	r := &readStmts{}
	p := preparer{ctx: ctx, prepare: db.PrepareContext}
	p.add(&r.row, `SELECT `+rowCols+`, `+lastSeq+` FROM sessions WHERE id = ?`)
	p.add(&r.number, `SELECT number FROM sessions WHERE id = ?`)
	p.add(&r.head, `SELECT `+lastSeq+` FROM sessions WHERE id = ?`)
	p.add(&r.events, `SELECT id, type, turn, at, data, sum, agent FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?`)
	p.add(&r.key, keyQuery)
	p.add(&r.search, `SELECT search.rowid, s.id, s.title, s.created_at, e.type, e.turn, e.at, e.data, e.sum, e.agent FROM search
		CROSS JOIN sessions s ON s.number = search.rowid >> 32 LEFT JOIN events e ON e.id = search.rowid
		WHERE search MATCH ? AND search.rowid >= ? AND search.rowid < ? ORDER BY search.rowid DESC LIMIT ?`)
	p.add(&r.seen, `SELECT seq FROM search_seen WHERE session = ?`)
	p.add(&r.behind, `SELECT number, id, coalesce((SELECT seq FROM search_seen WHERE session = sessions.number), 0), `+
		lastSeq+` FROM sessions WHERE number > ? ORDER BY number LIMIT ?`)
	p.add(&r.turn, `SELECT `+turnCols+` FROM turns WHERE session = ? AND id = ?`)
	p.add(&r.turns, `SELECT `+turnCols+` FROM turns WHERE session = ? AND number > ? ORDER BY number LIMIT ?`)
	p.add(&r.open, `SELECT `+turnCols+` FROM turns WHERE session = ? AND status IN ('queued', 'running')
		ORDER BY number`)
	p.add(&r.openAll, `SELECT t.id, s.id, t.number, t.status, t.message_seq, t.end_seq, t.created_at, t.started_at,
		t.ended_at FROM turns t JOIN sessions s ON s.number = t.session
		WHERE t.status IN ('queued', 'running') ORDER BY t.session, t.number`)
	p.add(&r.starting, `SELECT id FROM sessions WHERE status = 'starting' ORDER BY number`)
	p.add(&r.agent, `SELECT `+agentCols+` FROM agents WHERE name = ? AND deleted = 0`)
	p.add(&r.agents, `SELECT `+agentCols+` FROM agents WHERE deleted = 0 ORDER BY name`)
	p.add(&r.versionByNumber, `SELECT `+versionCols+` FROM agent_versions WHERE agent = ? AND number = ?`)
	p.add(&r.versionByID, `SELECT `+versionCols+` FROM agent_versions WHERE agent = ? AND id = ?
		ORDER BY number DESC LIMIT 1`)
	p.add(&r.versions, `SELECT `+versionCols+` FROM agent_versions WHERE agent = ? ORDER BY number DESC`)
	p.add(&r.approval, approvalOne)
	p.add(&r.expiry, `SELECT min(expires_at) FROM approvals WHERE state = 'pending' AND expires_at IS NOT NULL`)
	p.add(&r.rules, ruleList)
	p.add(&r.states, stateList)
	p.add(&r.secrets, `SELECT `+secretCols+` FROM secrets ORDER BY name`)
	p.add(&r.secret, `SELECT `+secretCols+` FROM secrets WHERE name = ?`)
	p.add(&r.apiKeys, `SELECT `+apiKeyCols+` FROM keys ORDER BY created_at, id`)
	r.audit.prepare(&p)
	r.outbox.prepare(&p)
	return r, p.err
}

// repeated is n groups of placeholders.
func repeated(group string, n int) string { return strings.Repeat(group+`,`, n-1) + group }

// preparer prepares until the first error.
type preparer struct {
	ctx     context.Context
	prepare func(context.Context, string) (*sql.Stmt, error)
	done    []*sql.Stmt
	err     error
}

func (p *preparer) add(dst **sql.Stmt, query string) {
	if p.err != nil {
		return
	}
	if *dst, p.err = p.prepare(p.ctx, query); p.err == nil {
		p.done = append(p.done, *dst)
	}
}

// found splits the absence of a row from failures.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
