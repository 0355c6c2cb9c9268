package app

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// chain holds the audit log that the store notifies of new records, once it is open.
type chain struct{ log atomic.Pointer[audit.Log] }

func (c *chain) audited(n int64) {
	if l := c.log.Load(); l != nil {
		l.Wake(n)
	}
}

// open opens the audit log. A damaged log is logged as an error, but the server
// keeps running: the sessions are not the cause, and every export shows the damage.
//
// The returned function closes the log.
func (c *chain) open(ctx context.Context, data string, store audit.Store, log *slog.Logger) (*audit.Log, func(), error) {
	key, err := auditKey(data)
	if err != nil {
		return nil, nil, err
	}
	if err := audit.Check(ctx, store, key); err != nil {
		log.Error("the audit log is damaged", "error", err, "hint", holdfast.HintOf(err))
	}
	l := audit.NewLog(audit.Config{
		Store: store, Key: key, Now: time.Now, Warn: func(err error) { log.Warn("audit", "error", err) },
	})
	c.log.Store(l)
	l.Start(context.WithoutCancel(ctx))
	logTip(log, store, key)
	return l, func() {
		l.Close()
		logTip(log, store, key)
	}, nil
}

// logTip writes the newest record's number and hash to the server's log, which is often stored
// where the server cannot change it.
func logTip(log *slog.Logger, store audit.Store, key audit.Key) {
	tip := store.AuditTip()
	log.Debug("audit log", "record", tip.String(), "hash", tip.Hash.String(), "key", audit.Fingerprint(key.Public()))
}

func auditKey(data string) (audit.Key, error) {
	seed, err := seal.KeyFile(filepath.Join(data, "audit.key"), rand.Reader)
	if err != nil {
		return audit.Key{}, err
	}
	return audit.NewKey(seed)
}

// checkAudit compares the ends of the newest chains of a data directory with their signed heads.
func checkAudit(ctx context.Context, data string) (c checks.Check, ok bool) {
	const name, fix = "audit log", "holdfast audit export FILE"
	if _, err := os.Stat(filepath.Join(data, "audit.key")); err != nil {
		return c, false // no server ran here yet, or checkData reports why the key cannot be read
	}
	key, err := auditKey(data)
	if err != nil {
		return checks.Bad(name, holdfast.HintOf(err), "%v", err), true
	}
	file, err := sqlite.OpenAudit(ctx, filepath.Join(data, "holdfast.db"))
	if err != nil {
		return checks.Bad(name, holdfast.HintOf(err), "%v", err), !holdfast.IsKind(err, holdfast.KindNotFound)
	}
	err = audit.Check(ctx, file, key)
	end, _, lerr := file.AuditEnd(ctx, math.MaxInt64)
	if err = errors.Join(err, lerr, file.Close()); err != nil {
		return checks.Bad(name, fix, "%v", err), true
	}
	return checks.Good(name, "chain %d with %d records, signed up to %d, key %s", end.Chain, end.Last.N, end.Head.N, audit.Fingerprint(key.Public())), true
}
