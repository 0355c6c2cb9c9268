package app

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/auditlog"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// NewAuditKey makes a new audit.key in a data directory on which no server runs, in place of one that is
// lost, and returns its public key. The audit log records the change, so that the heads of the former
// key do not look like damage. The error is conflict if there is an audit.key.
func NewAuditKey(ctx context.Context, data string) (public string, err error) {
	return auditlog.NewKey(data, func() error {
		if _, err := os.Stat(filepath.Join(data, "holdfast.db")); err != nil {
			return holdfast.Errorf(holdfast.KindNotFound, auditlog.KeyFile, "there is no database in the data directory %s", holdfast.Quote(data)).
				WithHint("name the data directory: --data DIR")
		}
		store, err := openStore(ctx, data, slog.New(slog.DiscardHandler), sqlite.Config{NewAuditKey: true})
		if err != nil {
			return err
		}
		return store.Close()
	})
}

// checkAudit checks the audit log of a data directory; false if it has none.
func checkAudit(ctx context.Context, data string) (checks.Check, bool) {
	const name = "audit log"
	detail, err := auditlog.Verify(ctx, data, func() (auditlog.File, error) {
		return sqlite.OpenAudit(ctx, filepath.Join(data, "holdfast.db"))
	})
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return checks.Check{}, false
	case err != nil:
		return checks.Bad(name, cmp.Or(holdfast.HintOf(err), "holdfast audit export FILE"), "%v", err), true
	}
	return checks.Good(name, "%s", detail), true
}
