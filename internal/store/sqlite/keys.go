package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/keys"
)

const apiKeyCols = `id, hash, name, scopes, max_trust, created_at, last_used_at, revoked_at`

type apiKeyStmts struct {
	get, put, revoke, touch *sql.Stmt
}

// keyMade and keyGone are what the audit chain says of a key.
type keyMade struct {
	ID       holdfast.KeyID   `json:"id"`
	Name     string           `json:"name"`
	Scopes   []holdfast.Scope `json:"scopes"`
	MaxTrust holdfast.Trust   `json:"max_trust"`
}

type keyGone struct {
	ID holdfast.KeyID `json:"id"`
}

func (w *writeStmts) prepareKeys(p *preparer) {
	p.add(&w.admin.keys.get, `SELECT 1 FROM keys WHERE id = ?`)
	p.add(&w.admin.keys.put, `INSERT INTO keys (`+apiKeyCols+`) VALUES (?,?,?,?,?,?,?,?)`)
	p.add(&w.admin.keys.revoke, `UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL`)
	p.add(&w.admin.keys.touch, `UPDATE keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?`)
}

func scanKey(sc scanner) (keys.Record, error) {
	var r keys.Record
	var scopes string
	var created int64
	var used, revoked sql.NullInt64
	if err := sc.Scan(&r.ID, &r.Hash, &r.Name, &scopes, &r.MaxTrust, &created, &used, &revoked); err != nil {
		return r, err
	}
	r.CreatedAt, r.LastUsedAt, r.RevokedAt = fromMS(created), fromNullMS(used), fromNullMS(revoked)
	if err := json.Unmarshal([]byte(scopes), &r.Scopes); err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, "store.key", "scopes of %s: %w", r.ID, err)
	}
	return r, nil
}

// PutKey implements keys.Store.
func (s *Store) PutKey(ctx context.Context, r keys.Record) error {
	if _, err := holdfast.ParseKeyID(string(r.ID)); err != nil {
		return err
	}
	if err := journal.CheckText("key", r.Name, string(r.MaxTrust)); err != nil {
		return err
	}
	scopes, err := json.Marshal(r.Scopes)
	if err != nil {
		return failure("store.key", err)
	}
	by := journal.By(ctx)
	plan := func(t *tx) error {
		have, err := t.hasKey(r.ID)
		if err == nil && have {
			return holdfast.Errorf(holdfast.KindConflict, "store.key", "key %s exists already", r.ID)
		}
		return err
	}
	apply := func(t *tx) error {
		_, err := t.s.w.admin.keys.put.ExecContext(t.ctx, r.ID, r.Hash, r.Name, string(scopes), r.MaxTrust,
			r.CreatedAt.UnixMilli(), toNullMS(r.LastUsedAt), toNullMS(r.RevokedAt))
		if err != nil {
			return err
		}
		return t.recordKey(audit.KeyCreated, by, keyMade{r.ID, r.Name, r.Scopes, r.MaxTrust})
	}
	return s.do(ctx, "store.key", &op{plan: plan, apply: apply})
}

// Keys implements keys.Store.
func (s *Store) Keys(ctx context.Context) ([]keys.Record, error) {
	rows, err := s.r.apiKeys.QueryContext(ctx)
	if err != nil {
		return nil, failure("store.keys", err)
	}
	defer rows.Close()
	var out []keys.Record
	for rows.Next() {
		r, err := scanKey(rows)
		if err != nil {
			return nil, failure("store.keys", err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.keys", err)
	}
	return out, nil
}

// RevokeKey implements keys.Store.
func (s *Store) RevokeKey(ctx context.Context, id holdfast.KeyID, at time.Time) error {
	by := journal.By(ctx)
	return s.changeKey(ctx, id, func(t *tx) error {
		res, err := t.s.w.admin.keys.revoke.ExecContext(t.ctx, at.UnixMilli(), id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err // it was revoked before
		}
		return t.recordKey(audit.KeyRevoked, by, keyGone{id})
	})
}

// TouchKey implements keys.Store.
func (s *Store) TouchKey(ctx context.Context, id holdfast.KeyID, at time.Time) error {
	return s.changeKey(ctx, id, func(t *tx) error {
		_, err := t.s.w.admin.keys.touch.ExecContext(t.ctx, at.UnixMilli(), id)
		return err
	})
}

func (s *Store) changeKey(ctx context.Context, id holdfast.KeyID, apply func(*tx) error) error {
	plan := func(t *tx) error {
		have, err := t.hasKey(id)
		if err == nil && !have {
			return holdfast.Errorf(holdfast.KindNotFound, "store.key", "there is no key %s", holdfast.Quote(string(id))).
				WithHint("holdfast key list shows them")
		}
		return err
	}
	return s.do(ctx, "store.key", &op{plan: plan, apply: apply})
}

func (t *tx) hasKey(id holdfast.KeyID) (bool, error) {
	var one int
	return found(t.s.w.admin.keys.get.QueryRowContext(t.ctx, id).Scan(&one))
}
