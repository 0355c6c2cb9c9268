package admin

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/secrets"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// environmentsPage is the most environments that one call of Environments returns. Each can have some megabytes.
const environmentsPage = "32"

// Environments implements secrets.Store.
func (s *Secrets) Environments(ctx context.Context, after secrets.Environment) (page []secrets.Environment, err error) {
	if after.Workspace == "" {
		rows, err := s.environments.QueryContext(ctx, after.Session)
		page, err = db.Collect("store.environments", rows, err, func(sc db.Scanner) (e secrets.Environment, err error) {
			err = sc.Scan(&e.Session, &e.Sealed)
			return e, err
		})
		if err != nil || len(page) > 0 {
			return page, err
		}
	}
	rows, err := s.spaces.QueryContext(ctx, after.Workspace)
	return db.Collect("store.environments", rows, err, func(sc db.Scanner) (e secrets.Environment, err error) {
		err = sc.Scan(&e.Workspace, &e.Sealed)
		return e, err
	})
}

// RewrapEnvironments implements secrets.Store. A session's row that is cached in memory keeps the former envelope.
// That envelope can still be opened while this process runs, and no other statement changes the column
// sealed_env of an existing session.
func (s *Secrets) RewrapEnvironments(ctx context.Context, wrapped []secrets.Environment) error {
	return s.db.Do(ctx, "store.environments", &db.Op{Apply: func(t *db.Tx) error {
		t.Pages += len(wrapped)
		for _, w := range wrapped {
			var err error
			if w.Workspace != "" {
				_, err = s.rewrapSpace.ExecContext(t.Ctx, w.Sealed, w.Workspace, w.Was)
			} else {
				_, err = s.rewrapEnvironment.ExecContext(t.Ctx, w.Sealed, w.Session, w.Was)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}})
}
