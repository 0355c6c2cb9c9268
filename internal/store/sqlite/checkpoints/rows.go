package checkpoints

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// columns are the columns that scan reads, from the tables checkpoints (c) and sessions (s).
const columns = `c.number, c.id, s.id, c.scope, c.seq, c.turn, c.turn_number, c.reason, c.workspace, c.home,
	c.files, c.bytes, c.fuzzy, c.abandoned, c.held, c.packs, c.created_at`

// rows is the table of checkpoints.
type rows struct {
	taken, target, newestList, newLists         *sql.Stmt
	held, hold                                  *sql.Stmt
	put, abandon, exact, remove, removeSession  *sql.Stmt
	one, page, at, within, newest, after, lists *sql.Stmt
}

func newRows(s *db.Setup) *rows {
	const (
		from        = `SELECT ` + columns + ` FROM checkpoints c JOIN sessions s ON s.number = c.session WHERE `
		of          = from + `c.session = (SELECT number FROM sessions WHERE id = ?) AND `
		newestFirst = ` ORDER BY c.seq DESC, c.number DESC LIMIT `
		lists       = `SELECT number, packs FROM checkpoints WHERE number > ? ORDER BY number LIMIT ?`
	)
	r := &rows{}
	s.Write(&r.taken, `SELECT 1 FROM checkpoints WHERE id = ?`)
	s.Write(&r.target, `SELECT 1 FROM checkpoints WHERE id = ? AND session = (SELECT number FROM sessions WHERE id = ?)`)
	s.Write(&r.newestList, `SELECT packs FROM checkpoints WHERE scope = ? ORDER BY number DESC LIMIT 1`)
	s.Write(&r.newLists, lists)
	s.Write(&r.held, `SELECT id FROM checkpoints WHERE held AND id IN (SELECT value FROM json_each(?)) LIMIT 1`)
	s.Write(&r.hold, `UPDATE checkpoints SET held = ?1 WHERE id = ?2 AND held <> ?1`)
	s.Write(&r.put, `INSERT INTO checkpoints (number, id, session, scope, seq, turn, turn_number, reason, workspace, home,
		files, bytes, fuzzy, abandoned, packs, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`)
	s.Write(&r.abandon, `UPDATE checkpoints SET abandoned = ?1
		WHERE session = ?2 AND seq > ?3 AND seq <= ?4 AND abandoned <> ?1`)
	s.Write(&r.exact, `UPDATE checkpoints SET packs = ? WHERE id = ?`)
	s.Write(&r.remove, `DELETE FROM checkpoints WHERE id IN (SELECT value FROM json_each(?))
		AND session = (SELECT number FROM sessions WHERE id = ?)`)
	s.Write(&r.removeSession, `DELETE FROM checkpoints WHERE session = ?`)
	s.Read(&r.one, of+`c.id = ?`)
	s.Read(&r.page, of+`(c.seq, c.number) < (?, ?)`+newestFirst+`?`)
	s.Read(&r.at, of+`c.seq <= ? AND NOT c.abandoned`+newestFirst+`1`)
	s.Read(&r.within, of+`c.seq > ? AND c.seq <= ?`+newestFirst+`1`)
	s.Read(&r.newest, from+`c.scope = ? ORDER BY c.number DESC LIMIT 1`)
	s.Read(&r.after, from+`c.number > ? ORDER BY c.number LIMIT ?`)
	s.Read(&r.lists, lists)
	return r
}

// ids returns ids of checkpoints as a JSON array.
func ids(list []holdfast.CheckpointID) string {
	raw, _ := json.Marshal(list) // the error is ignored: a list of texts can always be encoded
	return string(raw)
}

// insert stores a checkpoint of the session with the given number. packs are the numbers of the packs that it needs.
func (r *rows) insert(t *db.Tx, session int64, cp *journal.Checkpoint, packs []int64) error {
	workspace, err := hex.DecodeString(cp.Workspace)
	if err != nil {
		return err
	}
	home, err := hex.DecodeString(cp.Home)
	if err != nil {
		return err
	}
	created := t.NowMS
	if !cp.CreatedAt.IsZero() {
		created = cp.CreatedAt.UnixMilli()
	}
	list := encodeNumbers(packs)
	t.Pages += 4 + len(list)/db.PageSize
	_, err = r.put.ExecContext(t.Ctx, t.NextNumber(), cp.ID, session, cp.Scope, cp.Seq, cp.Turn, cp.Number, cp.Reason, workspace, home,
		cp.Files, cp.Bytes, cp.Fuzzy, cp.Abandoned, list, created)
	return err
}

// scan reads a row that has the columns of the constant columns.
func scan(sc db.Scanner) (journal.Checkpoint, error) {
	var c journal.Checkpoint
	var workspace, home, packs []byte
	var created int64
	err := sc.Scan(&c.Order, &c.ID, &c.Session, &c.Scope, &c.Seq, &c.Turn, &c.Number, &c.Reason, &workspace, &home,
		&c.Files, &c.Bytes, &c.Fuzzy, &c.Abandoned, &c.Held, &packs, &created)
	if err != nil {
		return c, err
	}
	c.Workspace, c.Home, c.CreatedAt = hex.EncodeToString(workspace), hex.EncodeToString(home), db.FromMS(created)
	if c.Packs, err = decodeNumbers(packs); err != nil {
		return c, holdfast.Errorf(holdfast.KindInternal, "store.checkpoint", "the stored checkpoint %s of session %s cannot be read: %w", c.ID, c.Session, err)
	}
	return c, nil
}
