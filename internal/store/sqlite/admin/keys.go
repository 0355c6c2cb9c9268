package admin

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/keys"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const apiKeyCols = `id, hash, name, scopes, max_trust, created_at, last_used_at, revoked_at`

// keyMade and keyGone are the data of the audit records for an API key that was created or revoked.
type keyMade struct {
	ID       holdfast.KeyID   `json:"id"`
	Name     string           `json:"name"`
	Scopes   []holdfast.Scope `json:"scopes"`
	MaxTrust holdfast.Trust   `json:"max_trust"`
}

type keyGone struct {
	ID holdfast.KeyID `json:"id"`
}

// Keys is the store of API keys. Safe for concurrent use.
type Keys struct {
	db    *db.DB
	audit Recorder

	get, put, revoke, touch *sql.Stmt
	all                     *sql.Stmt
}

// NewKeys makes the store in a database, and prepares its statements.
func NewKeys(s *db.Setup, audit Recorder) *Keys {
	k := &Keys{db: s.DB(), audit: audit}
	s.Write(&k.get, `SELECT 1 FROM keys WHERE id = ?`)
	s.Write(&k.put, `INSERT INTO keys (`+apiKeyCols+`) VALUES (?,?,?,?,?,?,?,?)`)
	s.Write(&k.revoke, `UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL`)
	s.Write(&k.touch, `UPDATE keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?`)
	s.Read(&k.all, `SELECT `+apiKeyCols+` FROM keys ORDER BY created_at, id`)
	return k
}

// scanKey reads a row of apiKeyCols.
func scanKey(sc db.Scanner) (keys.Record, error) {
	var r keys.Record
	var scopes string
	var created int64
	var used, revoked sql.NullInt64
	if err := sc.Scan(&r.ID, &r.Hash, &r.Name, &scopes, &r.MaxTrust, &created, &used, &revoked); err != nil {
		return r, err
	}
	r.CreatedAt, r.LastUsedAt, r.RevokedAt = db.FromMS(created), db.FromNullMS(used), db.FromNullMS(revoked)
	if err := json.Unmarshal([]byte(scopes), &r.Scopes); err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, "store.key", "the stored scopes of API key %s cannot be decoded: %w", r.ID, err)
	}
	return r, nil
}

// PutKey implements keys.Store.
func (s *Keys) PutKey(ctx context.Context, r keys.Record) error {
	if _, err := holdfast.Parse[holdfast.KeyID](string(r.ID)); err != nil {
		return err
	}
	if err := journal.CheckText("key", r.Name, string(r.MaxTrust)); err != nil {
		return err
	}
	scopes, err := json.Marshal(r.Scopes)
	if err != nil {
		return db.Failure("store.key", err)
	}
	by := journal.By(ctx)
	plan := func(t *db.Tx) error {
		have, err := s.has(t, r.ID)
		if err == nil && have {
			return holdfast.Errorf(holdfast.KindConflict, "store.key", "API key %s exists already", r.ID)
		}
		return err
	}
	apply := func(t *db.Tx) error {
		_, err := s.put.ExecContext(t.Ctx, r.ID, r.Hash, r.Name, string(scopes), r.MaxTrust,
			r.CreatedAt.UnixMilli(), db.ToNullMS(r.LastUsedAt), db.ToNullMS(r.RevokedAt))
		if err != nil {
			return err
		}
		return s.audit.Record(t, audit.KeyCreated, by, keyMade{r.ID, r.Name, r.Scopes, r.MaxTrust})
	}
	return s.db.Do(ctx, "store.key", &db.Op{Plan: plan, Apply: apply})
}

// Keys implements keys.Store.
func (s *Keys) Keys(ctx context.Context) ([]keys.Record, error) {
	rows, err := s.all.QueryContext(ctx)
	return db.Collect("store.keys", rows, err, scanKey)
}

// RevokeKey implements keys.Store.
func (s *Keys) RevokeKey(ctx context.Context, id holdfast.KeyID, at time.Time) error {
	by := journal.By(ctx)
	return s.changeKey(ctx, id, func(t *db.Tx) error {
		if n, err := db.Affected(s.revoke.ExecContext(t.Ctx, at.UnixMilli(), id)); err != nil || n == 0 {
			return err // an error, or the key was already revoked
		}
		return s.audit.Record(t, audit.KeyRevoked, by, keyGone{id})
	})
}

// TouchKey implements keys.Store.
func (s *Keys) TouchKey(ctx context.Context, id holdfast.KeyID, at time.Time) error {
	return s.changeKey(ctx, id, func(t *db.Tx) error {
		_, err := s.touch.ExecContext(t.Ctx, at.UnixMilli(), id)
		return err
	})
}

// changeKey carries out apply, which changes an API key; not_found for an unknown key.
func (s *Keys) changeKey(ctx context.Context, id holdfast.KeyID, apply func(*db.Tx) error) error {
	plan := func(t *db.Tx) error {
		have, err := s.has(t, id)
		if err == nil && !have {
			return holdfast.Errorf(holdfast.KindNotFound, "store.key", "there is no API key %s", holdfast.Quote(string(id))).
				WithHint("holdfast key list shows all keys")
		}
		return err
	}
	return s.db.Do(ctx, "store.key", &db.Op{Plan: plan, Apply: apply})
}

func (s *Keys) has(t *db.Tx, id holdfast.KeyID) (bool, error) {
	var one int
	return db.Found(s.get.QueryRowContext(t.Ctx, id).Scan(&one))
}
