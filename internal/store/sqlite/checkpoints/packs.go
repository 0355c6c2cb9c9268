package checkpoints

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// packs is the table of packs. Its statements take several numbers as a JSON array.
type packs struct {
	missing                       *sql.Stmt
	put, add, use, retire, remove *sql.Stmt
	some, all                     *sql.Stmt
}

func newPacks(s *db.Setup) *packs {
	const cols = `SELECT number, id, bytes, unused FROM packs`
	const listed = `(SELECT value FROM json_each(?))`
	p := &packs{}
	s.Write(&p.missing, `SELECT value FROM json_each(?) WHERE value NOT IN (SELECT number FROM packs) ORDER BY value`)
	s.Write(&p.put, `INSERT INTO packs (number, id, bytes) VALUES (?,?,?) ON CONFLICT (id) DO UPDATE SET unused = NULL
		RETURNING number`)
	s.Write(&p.add, `INSERT INTO packs (number, id, bytes, unused) VALUES (?,?,?,?) ON CONFLICT (id) DO UPDATE SET id = id
		RETURNING number, id, bytes, unused`)
	s.Write(&p.use, `UPDATE packs SET unused = NULL WHERE number IN `+listed+` AND unused IS NOT NULL`)
	s.Write(&p.retire, `UPDATE packs SET unused = ? WHERE number IN `+listed+` AND unused IS NULL`)
	s.Write(&p.remove, `DELETE FROM packs WHERE number IN `+listed)
	s.Read(&p.some, cols+` WHERE number IN `+listed+` ORDER BY number`)
	s.Read(&p.all, cols+` ORDER BY number`)
	return p
}

// list returns numbers as a JSON array.
func list(numbers []int64) string {
	raw, _ := json.Marshal(numbers) // the error is ignored: a list of numbers can always be encoded
	return string(raw)
}

// absent returns those of the numbers that are not stored, ascending.
func (p *packs) absent(t *db.Tx, numbers []int64) ([]int64, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	rows, err := p.missing.QueryContext(t.Ctx, list(numbers))
	return db.Collect("store.packs", rows, err, func(sc db.Scanner) (n int64, err error) {
		err = sc.Scan(&n)
		return n, err
	})
}

// insert stores a pack that a checkpoint needs, and returns its number. A pack that is stored already
// keeps its number.
func (p *packs) insert(t *db.Tx, pack journal.Pack) (number int64, err error) {
	id, err := hex.DecodeString(pack.ID)
	if err != nil {
		return 0, err
	}
	t.Pages += 2
	err = p.put.QueryRowContext(t.Ctx, t.NextNumber(), id, pack.Bytes).Scan(&number)
	return number, err
}

// used clears the time since which these packs are unused.
func (p *packs) used(t *db.Tx, numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	res, err := p.use.ExecContext(t.Ctx, list(numbers))
	return changed(t, res, err)
}

// changed adds to t.Pages one page for each row that a statement changed. res and err are the result of the statement.
func changed(t *db.Tx, res sql.Result, err error) error {
	n, err := db.Affected(res, err)
	t.Pages += int(n)
	return err
}

// scanPack reads a row with the columns number, id, bytes and unused.
func scanPack(sc db.Scanner) (p journal.Pack, err error) {
	var id []byte
	var unused sql.NullInt64
	err = sc.Scan(&p.Number, &id, &p.Bytes, &unused)
	p.ID, p.Unused = hex.EncodeToString(id), db.FromNullMS(unused)
	return p, err
}
