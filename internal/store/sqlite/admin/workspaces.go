package admin

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

const workspaceCols = `number, slug, title, dir, device, inode, uid, gid, umask, default_trust, model, runtime, network, mount, limits, permissions, env, sealed_env, deleting, revision, created_at, updated_at`

// workspaceMade and workspaceGone are the data of the audit records for a workspace that was created or changed,
// and for one that was deleted.
type workspaceMade struct {
	ID           holdfast.Slug  `json:"id"`
	Dir          string         `json:"dir,omitempty"`
	DefaultTrust holdfast.Trust `json:"default_trust_level,omitempty"`
	Network      []string       `json:"network,omitzero"`

	// Env has the names of the environment variables as keys, each with the value "***".
	Env         map[string]string   `json:"env,omitempty"`
	Limits      map[string]string   `json:"limits,omitempty"`
	Permissions map[string][]string `json:"permissions,omitempty"`
	Mount       string              `json:"mount,omitempty"`
}

func made(r *workspaces.Record) workspaceMade {
	return workspaceMade{r.ID, r.Dir, r.DefaultTrust, r.Network, r.Env, r.Limits, r.Permissions, r.Mount}
}

type workspaceGone struct {
	ID holdfast.Slug `json:"id"`
}

// Workspaces is the store of workspaces. Safe for concurrent use.
type Workspaces struct {
	db    *db.DB
	audit Recorder
	rules Rules

	get, add, change, remove, used *sql.Stmt
	one, all, members              *sql.Stmt
}

var _ workspaces.Store = (*Workspaces)(nil)

// Rules removes permission rules, in a transaction of the caller.
type Rules interface {
	RemoveRules(t *db.Tx, key string) error
}

// NewWorkspaces makes the store in a database, and prepares its statements.
func NewWorkspaces(s *db.Setup, audit Recorder, rules Rules) *Workspaces {
	w := &Workspaces{db: s.DB(), audit: audit, rules: rules}
	const one = `SELECT ` + workspaceCols + `, 0 FROM workspaces WHERE slug = ?`
	s.Write(&w.get, one)
	s.Write(&w.add, `INSERT INTO workspaces (slug, title, dir, device, inode, uid, gid, umask, default_trust, model, runtime, network, mount, limits, permissions, env, sealed_env, deleting, revision, created_at, updated_at)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,0,1,?,?)`)
	s.Write(&w.change, `UPDATE workspaces SET title = ?, default_trust = ?, model = ?, runtime = ?, network = ?, mount = ?, limits = ?, permissions = ?, env = ?,
		sealed_env = CASE WHEN ? THEN ? ELSE sealed_env END, deleting = ?, revision = revision + 1, updated_at = ? WHERE slug = ?`)
	s.Write(&w.remove, `DELETE FROM workspaces WHERE slug = ?`)
	s.Write(&w.used, `SELECT count(*) FROM sessions WHERE workspace = ?`)
	const counted = `SELECT ` + workspaceCols + `, (SELECT count(*) FROM sessions WHERE workspace = slug AND status <> 'ended') FROM workspaces`
	s.Read(&w.one, counted+` WHERE slug = ?`)
	s.Read(&w.all, counted+` ORDER BY slug`)
	s.Read(&w.members, `SELECT id, workspace, trust, mount FROM sessions WHERE workspace IS NOT NULL`)
	return w
}

// scanWorkspace reads a row of workspaceCols and the number of sessions.
func scanWorkspace(sc db.Scanner) (r workspaces.Record, err error) {
	var network, limits, permissions, env sql.NullString
	var device, inode, created, updated int64
	var mask uint32
	if err := sc.Scan(&r.Number, &r.ID, &r.Title, &r.Dir, &device, &inode, &r.UID, &r.GID, &mask, &r.DefaultTrust, &r.Model, &r.Runtime, &network, &r.Mount,
		&limits, &permissions, &env, &r.Sealed, &r.Deleting, &r.Revision, &created, &updated, &r.Sessions); err != nil {
		return r, err
	}
	r.Device, r.Inode, r.CreatedAt, r.UpdatedAt = uint64(device), uint64(inode), db.FromMS(created), db.FromMS(updated)
	r.SetUmask(mask)
	for _, col := range []struct {
		name string
		text sql.NullString
		to   any
	}{{"network destinations", network, &r.Network}, {"limits", limits, &r.Limits}, {"permissions", permissions, &r.Permissions}, {"names of the environment", env, &r.Env}} {
		if !col.text.Valid {
			continue
		}
		if err := json.Unmarshal([]byte(col.text.String), col.to); err != nil {
			return r, holdfast.Errorf(holdfast.KindInternal, "store.workspace", "the stored %s of workspace %s cannot be decoded: %w", col.name, r.ID, err)
		}
	}
	return r, nil
}

// settings are the columns of a workspace that hold JSON; nil is null.
type settings struct{ network, limits, permissions, env *string }

// encoded checks a workspace and returns its settings as they are stored.
func encoded(r *workspaces.Record) (s settings, err error) {
	if err := checkWorkspace(r); err != nil {
		return s, err
	}
	set := func(to **string, v any, none bool) {
		if none || err != nil {
			return
		}
		var raw []byte
		raw, err = json.Marshal(v)
		text := string(raw)
		*to = &text
	}
	set(&s.network, r.Network, r.Network == nil)
	set(&s.limits, r.Limits, len(r.Limits) == 0)
	set(&s.env, r.Env, len(r.Env) == 0)
	set(&s.permissions, r.Permissions, len(r.Permissions) == 0)
	if err != nil {
		err = db.Failure("store.workspace", err)
	}
	return s, err
}

// load returns a workspace within a transaction.
func (w *Workspaces) load(t *db.Tx, id holdfast.Slug) (workspaces.Record, bool, error) {
	r, err := scanWorkspace(w.get.QueryRowContext(t.Ctx, id))
	ok, err := db.Found(err)
	return r, ok, err
}

// checkWorkspace refuses a workspace whose id, umask or texts are not valid.
func checkWorkspace(r *workspaces.Record) error {
	if _, err := holdfast.Parse[holdfast.Slug](string(r.ID)); err != nil {
		return err
	}
	if r.Mask > 0o777 {
		return holdfast.Errorf(holdfast.KindInvalid, "store.workspace", "the umask %o of workspace %s is above 777", r.Mask, r.ID)
	}
	return journal.CheckText("workspace", r.Title, r.Dir, string(r.DefaultTrust), r.Model, r.Runtime, r.Mount)
}

// AddWorkspace implements workspaces.Store.
func (w *Workspaces) AddWorkspace(ctx context.Context, r workspaces.Record) (workspaces.Record, error) {
	set, err := encoded(&r)
	if err != nil {
		return r, err
	}
	by := journal.By(ctx)
	plan := func(t *db.Tx) error {
		_, have, err := w.load(t, r.ID)
		if err == nil && have {
			return holdfast.Errorf(holdfast.KindConflict, "store.workspace", "workspace %s exists already", holdfast.Quote(string(r.ID))).
				WithHint("holdfast workspace show %s", r.ID)
		}
		return err
	}
	apply := func(t *db.Tx) error {
		r.Revision, r.CreatedAt, r.UpdatedAt, r.Reseal = 1, t.Now, t.Now, false
		res, err := w.add.ExecContext(t.Ctx, r.ID, r.Title, r.Dir, int64(r.Device), int64(r.Inode), r.UID, r.GID, r.Mask, r.DefaultTrust, r.Model, r.Runtime,
			set.network, r.Mount, set.limits, set.permissions, set.env, r.Sealed, t.NowMS, t.NowMS)
		if err == nil {
			r.Number, err = res.LastInsertId()
		}
		if err != nil {
			return err
		}
		return w.audit.Record(t, audit.WorkspaceCreated, by, made(&r))
	}
	return r, w.db.Do(ctx, "store.workspace", &db.Op{Plan: plan, Apply: apply, Weight: 1024})
}

// Workspace implements workspaces.Store.
func (w *Workspaces) Workspace(ctx context.Context, id holdfast.Slug) (workspaces.Record, error) {
	r, err := scanWorkspace(w.one.QueryRowContext(ctx, id))
	return r, db.RowError("store.workspace", err, func() error { return journal.NoWorkspace(id) })
}

// Workspaces implements workspaces.Store.
func (w *Workspaces) Workspaces(ctx context.Context) ([]workspaces.Record, error) {
	rows, err := w.all.QueryContext(ctx)
	return db.Collect("store.workspaces", rows, err, scanWorkspace)
}

// ChangeWorkspace implements workspaces.Store.
func (w *Workspaces) ChangeWorkspace(ctx context.Context, r workspaces.Record) (workspaces.Record, error) {
	set, err := encoded(&r)
	if err != nil {
		return r, err
	}
	by := journal.By(ctx)
	plan := func(t *db.Tx) error {
		old, have, err := w.load(t, r.ID)
		switch {
		case err != nil:
			return err
		case !have:
			return journal.NoWorkspace(r.ID)
		case old.Number != r.Number: // the workspace was deleted, and a new one with the same name was created
			return holdfast.Errorf(holdfast.KindConflict, "store.workspace", "workspace %s was deleted and made again since it was read", r.ID).
				WithHint("read the workspace again: holdfast workspace show %s", r.ID)
		case old.Revision != r.Revision:
			return holdfast.Errorf(holdfast.KindConflict, "store.workspace", "workspace %s is at revision %d, not at %d as the request says", r.ID, old.Revision, r.Revision).
				WithHint("read the workspace again: holdfast workspace show %s", r.ID)
		}
		return nil
	}
	apply := func(t *db.Tx) error {
		if _, err := w.change.ExecContext(t.Ctx, r.Title, r.DefaultTrust, r.Model, r.Runtime, set.network, r.Mount, set.limits, set.permissions, set.env, r.Reseal, r.Sealed, r.Deleting, t.NowMS, r.ID); err != nil {
			return err
		}
		r.Revision, r.UpdatedAt, r.Reseal = r.Revision+1, t.Now, false
		return w.audit.Record(t, audit.WorkspaceChanged, by, made(&r))
	}
	return r, w.db.Do(ctx, "store.workspace", &db.Op{Plan: plan, Apply: apply, Weight: 1024})
}

// RemoveWorkspace implements workspaces.Store.
func (w *Workspaces) RemoveWorkspace(ctx context.Context, id holdfast.Slug) error {
	by := journal.By(ctx)
	plan := func(t *db.Tx) error {
		_, have, err := w.load(t, id)
		if err != nil {
			return err
		}
		if !have {
			return journal.NoWorkspace(id)
		}
		var n int
		if err := w.used.QueryRowContext(t.Ctx, id).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return holdfast.Errorf(holdfast.KindConflict, "store.workspace", "%d sessions still have workspace %s", n, id)
		}
		return nil
	}
	apply := func(t *db.Tx) error {
		if _, err := w.remove.ExecContext(t.Ctx, id); err != nil {
			return err
		}
		// Remove the workspace's rules: they would apply to the next workspace with that name.
		if err := w.rules.RemoveRules(t, journal.WorkspaceKey(id)); err != nil {
			return err
		}
		return w.audit.Record(t, audit.WorkspaceDeleted, by, workspaceGone{id})
	}
	return w.db.Do(ctx, "store.workspace", &db.Op{Plan: plan, Apply: apply})
}

// Members implements workspaces.Store.
func (w *Workspaces) Members(ctx context.Context) (map[holdfast.SessionID]workspaces.Member, error) {
	type row struct {
		id holdfast.SessionID
		workspaces.Member
	}
	rows, err := w.members.QueryContext(ctx)
	list, err := db.Collect("store.workspaces", rows, err, func(sc db.Scanner) (r row, err error) {
		err = sc.Scan(&r.id, &r.Workspace, &r.Trust, &r.Mount)
		return r, err
	})
	out := make(map[holdfast.SessionID]workspaces.Member, len(list))
	for _, r := range list {
		out[r.id] = r.Member
	}
	return out, err
}
