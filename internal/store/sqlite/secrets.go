package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/secrets"
)

const secretCols = `name, sealed, key_id, created_at, updated_at`

type secretStmts struct {
	get, whole, put, remove, rewrap *sql.Stmt
}

// secretNamed is what the audit chain says of a secret.
type secretNamed struct {
	Name holdfast.SecretName `json:"name"`
}

func (w *writeStmts) prepareSecrets(p *preparer) {
	s := &w.admin.secrets
	p.add(&s.get, `SELECT 1 FROM secrets WHERE name = ?`)
	p.add(&s.whole, `SELECT `+secretCols+` FROM secrets WHERE name = ?`)
	p.add(&s.put, `INSERT INTO secrets (`+secretCols+`) VALUES (?,?,?,?,?) ON CONFLICT (name)
		DO UPDATE SET sealed = excluded.sealed, key_id = excluded.key_id, updated_at = excluded.updated_at`)
	p.add(&s.remove, `DELETE FROM secrets WHERE name = ?`)
	p.add(&s.rewrap, `UPDATE secrets SET sealed = ?, key_id = ? WHERE name = ?`)
}

func scanSecret(sc scanner) (secrets.Record, error) {
	var r secrets.Record
	var created, updated int64
	err := sc.Scan(&r.Name, &r.Sealed, &r.KeyID, &created, &updated)
	r.CreatedAt, r.UpdatedAt = fromMS(created), fromMS(updated)
	return r, err
}

func noSecret(name holdfast.SecretName) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store.secret", "there is no secret %s", holdfast.Quote(string(name))).
		WithHint("holdfast secret list shows them")
}

// Secrets implements secrets.Store.
func (s *Store) Secrets(ctx context.Context) ([]secrets.Record, error) {
	rows, err := s.r.secrets.QueryContext(ctx)
	if err != nil {
		return nil, failure("store.secrets", err)
	}
	defer rows.Close()
	var out []secrets.Record
	for rows.Next() {
		r, err := scanSecret(rows)
		if err != nil {
			return nil, failure("store.secrets", err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.secrets", err)
	}
	return out, nil
}

// Secret implements secrets.Store.
func (s *Store) Secret(ctx context.Context, name holdfast.SecretName) (secrets.Record, error) {
	r, err := scanSecret(s.r.secret.QueryRowContext(ctx, name))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return secrets.Record{}, noSecret(name)
	case err != nil:
		return secrets.Record{}, failure("store.secret", err)
	}
	return r, nil
}

// PutSecret implements secrets.Store.
func (s *Store) PutSecret(ctx context.Context, r secrets.Record) error {
	by := journal.By(ctx)
	return s.do(ctx, "store.secret", &op{plan: func(*tx) error { return nil }, apply: func(t *tx) error {
		_, err := t.s.w.admin.secrets.put.ExecContext(t.ctx, r.Name, r.Sealed, r.KeyID, r.CreatedAt.UnixMilli(), r.UpdatedAt.UnixMilli())
		if err != nil {
			return err
		}
		return t.recordKey(audit.SecretSet, by, secretNamed{r.Name})
	}})
}

// RemoveSecret implements secrets.Store.
func (s *Store) RemoveSecret(ctx context.Context, name holdfast.SecretName) error {
	by := journal.By(ctx)
	plan := func(t *tx) error {
		var one int
		have, err := found(t.s.w.admin.secrets.get.QueryRowContext(t.ctx, name).Scan(&one))
		if err == nil && !have {
			return noSecret(name)
		}
		return err
	}
	return s.do(ctx, "store.secret", &op{plan: plan, apply: func(t *tx) error {
		if _, err := t.s.w.admin.secrets.remove.ExecContext(t.ctx, name); err != nil {
			return err
		}
		return t.recordKey(audit.SecretRemoved, by, secretNamed{name})
	}})
}

// RewrapSecrets implements secrets.Store.
func (s *Store) RewrapSecrets(ctx context.Context, wrapped []secrets.Rewrapped) error {
	by := journal.By(ctx)
	plan := func(t *tx) error {
		for _, w := range wrapped {
			r, err := scanSecret(t.s.w.admin.secrets.whole.QueryRowContext(t.ctx, w.Name))
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if string(r.Sealed) != string(w.Was) {
				return holdfast.Errorf(holdfast.KindConflict, "store.secret", "the secret %s changed meanwhile", w.Name)
			}
		}
		return nil
	}
	return s.do(ctx, "store.secret", &op{plan: plan, apply: func(t *tx) error {
		for _, w := range wrapped {
			if _, err := t.s.w.admin.secrets.rewrap.ExecContext(t.ctx, w.Sealed, w.KeyID, w.Name); err != nil {
				return err
			}
		}
		return t.recordKey(audit.SecretsRotated, by, struct{}{})
	}})
}
