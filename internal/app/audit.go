package app

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// chain is the audit log that the store tells of new records, once there is one.
type chain struct{ log atomic.Pointer[audit.Log] }

func (c *chain) audited(n int64) {
	if l := c.log.Load(); l != nil {
		l.Wake(n)
	}
}

// open starts the log of the audit chain. A chain that was cut or changed is
// said as loudly as the log can, and stops nothing: the sessions are not to blame,
// and every export shows it.
//
// The function ends it.
func (c *chain) open(ctx context.Context, data string, store audit.Store, log *slog.Logger) (*audit.Log, func(), error) {
	key, err := auditKey(data)
	if err != nil {
		return nil, nil, err
	}
	if err := audit.Check(ctx, store, key); err != nil {
		log.Error("the audit chain is damaged", "error", err, "hint", holdfast.HintOf(err))
	}
	l := audit.NewLog(audit.Config{
		Store: store, Key: key, Now: time.Now, Warn: func(err error) { log.Warn("audit", "error", err) },
	})
	c.log.Store(l)
	if err := l.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, nil, err
	}
	logTip(log, store, key)
	return l, func() {
		l.Close()
		logTip(log, store, key)
	}, nil
}

// logTip leaves the end of the chain in the server's log, which is often kept
// where the server cannot change it.
func logTip(log *slog.Logger, store audit.Store, key audit.Key) {
	tip := store.AuditTip()
	if tip.N == 0 {
		return
	}
	log.Debug("audit chain", "n", tip.N, "hash", tip.Hash.String(), "key", audit.Fingerprint(key.Public()))
}

func auditKey(data string) (audit.Key, error) {
	seed, err := seal.KeyFile(filepath.Join(data, "audit.key"), rand.Reader)
	if err != nil {
		return audit.Key{}, err
	}
	return audit.NewKey(seed)
}

// checkAudit compares the chain of a data directory with its signed heads.
func checkAudit(ctx context.Context, data string) (c Check, ok bool) {
	const name, fix = "audit chain", "holdfast audit export FILE"
	if _, err := os.Stat(filepath.Join(data, "audit.key")); err != nil {
		return c, false // no server ran here yet, or the check of the directory says why
	}
	key, err := auditKey(data)
	if err != nil {
		return bad(name, holdfast.HintOf(err), "%v", err), true
	}
	file, err := sqlite.OpenAudit(ctx, filepath.Join(data, "holdfast.db"))
	if err != nil {
		return bad(name, holdfast.HintOf(err), "%v", err), !holdfast.IsKind(err, holdfast.KindNotFound)
	}
	err = audit.Check(ctx, file, key)
	last, head, lerr := file.AuditLast(ctx)
	if err = errors.Join(err, lerr, file.Close()); err != nil {
		return bad(name, fix, "%v", err), true
	}
	return good(name, "%d records, signed up to %d, key %s", last.N, head.N, audit.Fingerprint(key.Public())), true
}
