package admin

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/secrets"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const secretCols = `name, sealed, key_id, created_at, updated_at`

// secretNamed is the data of the audit records for a secret that was set or removed.
type secretNamed struct {
	Name holdfast.SecretName `json:"name"`
}

// Secrets is the store of sealed credentials, and of the sealed environments in the rows of sessions
// and workspaces while the root key changes. Safe for concurrent use.
type Secrets struct {
	db    *db.DB
	audit Recorder

	get, whole, put, remove, rewrap *sql.Stmt
	one, all                        *sql.Stmt
	environments, rewrapEnvironment *sql.Stmt
	spaces, rewrapSpace             *sql.Stmt
}

// NewSecrets makes the store in a database, and prepares its statements.
func NewSecrets(s *db.Setup, audit Recorder) *Secrets {
	v := &Secrets{db: s.DB(), audit: audit}
	s.Write(&v.get, `SELECT 1 FROM secrets WHERE name = ?`)
	s.Write(&v.whole, `SELECT `+secretCols+` FROM secrets WHERE name = ?`)
	s.Write(&v.put, `INSERT INTO secrets (`+secretCols+`) VALUES (?,?,?,?,?) ON CONFLICT (name)
		DO UPDATE SET sealed = excluded.sealed, key_id = excluded.key_id, updated_at = excluded.updated_at`)
	s.Write(&v.remove, `DELETE FROM secrets WHERE name = ?`)
	s.Write(&v.rewrap, `UPDATE secrets SET sealed = ?, key_id = ? WHERE name = ?`)
	s.Read(&v.all, `SELECT `+secretCols+` FROM secrets ORDER BY name`)
	s.Read(&v.environments, `SELECT id, sealed_env FROM sessions WHERE id > ? AND sealed_env IS NOT NULL
		ORDER BY id LIMIT `+environmentsPage)
	s.Write(&v.rewrapEnvironment, `UPDATE sessions SET sealed_env = ? WHERE id = ? AND sealed_env = ?`)
	s.Read(&v.spaces, `SELECT slug, sealed_env FROM workspaces WHERE slug > ? AND sealed_env IS NOT NULL
		ORDER BY slug LIMIT `+environmentsPage)
	s.Write(&v.rewrapSpace, `UPDATE workspaces SET sealed_env = ? WHERE slug = ? AND sealed_env = ?`)
	s.Read(&v.one, `SELECT `+secretCols+` FROM secrets WHERE name = ?`)
	return v
}

// scanSecret reads a row of secretCols.
func scanSecret(sc db.Scanner) (secrets.Record, error) {
	var r secrets.Record
	var created, updated int64
	err := sc.Scan(&r.Name, &r.Sealed, &r.KeyID, &created, &updated)
	r.CreatedAt, r.UpdatedAt = db.FromMS(created), db.FromMS(updated)
	return r, err
}

func noSecret(name holdfast.SecretName) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store.secret", "there is no secret %s", holdfast.Quote(string(name))).
		WithHint("holdfast secret list shows all secrets")
}

// Secrets implements secrets.Store.
func (s *Secrets) Secrets(ctx context.Context) ([]secrets.Record, error) {
	rows, err := s.all.QueryContext(ctx)
	return db.Collect("store.secrets", rows, err, scanSecret)
}

// Secret implements secrets.Store.
func (s *Secrets) Secret(ctx context.Context, name holdfast.SecretName) (secrets.Record, error) {
	r, err := scanSecret(s.one.QueryRowContext(ctx, name))
	return r, db.RowError("store.secret", err, func() error { return noSecret(name) })
}

// PutSecret implements secrets.Store.
func (s *Secrets) PutSecret(ctx context.Context, r secrets.Record) error {
	by := journal.By(ctx)
	return s.db.Do(ctx, "store.secret", &db.Op{Apply: func(t *db.Tx) error {
		_, err := s.put.ExecContext(t.Ctx, r.Name, r.Sealed, r.KeyID, r.CreatedAt.UnixMilli(), r.UpdatedAt.UnixMilli())
		if err != nil {
			return err
		}
		return s.audit.Record(t, audit.SecretSet, by, secretNamed{r.Name})
	}})
}

// RemoveSecret implements secrets.Store.
func (s *Secrets) RemoveSecret(ctx context.Context, name holdfast.SecretName) error {
	by := journal.By(ctx)
	plan := func(t *db.Tx) error {
		var one int
		have, err := db.Found(s.get.QueryRowContext(t.Ctx, name).Scan(&one))
		if err == nil && !have {
			return noSecret(name)
		}
		return err
	}
	return s.db.Do(ctx, "store.secret", &db.Op{Plan: plan, Apply: func(t *db.Tx) error {
		if _, err := s.remove.ExecContext(t.Ctx, name); err != nil {
			return err
		}
		return s.audit.Record(t, audit.SecretRemoved, by, secretNamed{name})
	}})
}

// RewrapSecrets implements secrets.Store.
func (s *Secrets) RewrapSecrets(ctx context.Context, wrapped []secrets.Rewrapped) error {
	by := journal.By(ctx)
	plan := func(t *db.Tx) error {
		for _, w := range wrapped {
			r, err := scanSecret(s.whole.QueryRowContext(t.Ctx, w.Name))
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if string(r.Sealed) != string(w.Was) {
				return holdfast.Errorf(holdfast.KindConflict, "store.secret", "secret %s was changed while the secrets were sealed with a new key", w.Name)
			}
		}
		return nil
	}
	return s.db.Do(ctx, "store.secret", &db.Op{Plan: plan, Apply: func(t *db.Tx) error {
		for _, w := range wrapped {
			if _, err := s.rewrap.ExecContext(t.Ctx, w.Sealed, w.KeyID, w.Name); err != nil {
				return err
			}
		}
		return s.audit.Record(t, audit.SecretsRotated, by, struct{}{})
	}})
}
