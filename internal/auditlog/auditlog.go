// Package auditlog opens the audit log of a data directory: its key, the signer of its heads, and the checks of
// the log at a start and by the doctor.
//
// The app imports it and gives it the store. Invariant: an audit.key with which heads were signed is replaced only
// after a record that says so was written.
package auditlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/seal"
)

// Chain holds the audit log that the store notifies of new records, once it is open.
type Chain struct{ log atomic.Pointer[audit.Log] }

// Audited tells the audit log, once it is open, that the server's chain has grown to record n. It never blocks.
func (c *Chain) Audited(n int64) {
	if l := c.log.Load(); l != nil {
		l.Wake(n)
	}
}

// Open opens the audit log. A damaged log is logged as an error, but the server
// keeps running: the sessions are not the cause, and every export shows the damage.
//
// The returned function closes the log.
func (c *Chain) Open(ctx context.Context, data string, store audit.Store, log *slog.Logger) (*audit.Log, func(), error) {
	key, err := openKey(data)
	if err != nil {
		return nil, nil, err
	}
	if err := audit.Check(ctx, store, key); err != nil {
		log.Error("the audit log is damaged", "error", err, "hint", holdfast.HintOf(err))
	}
	l := audit.NewLog(audit.Config{
		Store: store, Key: key, Now: time.Now, Warn: func(err error) { log.Warn("a signed head of the audit log could not be stored", "error", err) },
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

func openKey(data string) (audit.Key, error) {
	seed, err := seal.KeyFile(filepath.Join(data, KeyFile), rand.Reader)
	if err != nil {
		return audit.Key{}, err
	}
	return audit.NewKey(seed)
}

// KeyFile is the file of a data directory with the key that signs heads of the audit log.
const KeyFile = "audit.key"

// NewKey makes a new key in a data directory on which no server runs, in place of a lost key, and returns its public
// key. record writes a record of the change, which begins a new chain. The error is conflict if the key file exists.
//
// The record is written before the key: if the program ends between the two, the server does not start without the key,
// and NewKey can be called again.
func NewKey(data string, record func() error) (public string, err error) {
	path := filepath.Join(data, KeyFile)
	if _, err := os.Lstat(path); err == nil {
		return "", holdfast.Errorf(holdfast.KindConflict, KeyFile, "the key file %s exists already", holdfast.Quote(path)).
			WithHint("use the key file that exists; if it is not the key of this audit log, and the right key is lost, move the file away: mv %s %s.other", path, path)
	}
	if err := record(); err != nil {
		return "", err
	}
	key, err := openKey(data)
	if err != nil {
		return "", err
	}
	return key.Public(), nil
}

// File is the audit log of a database file that a server may be using.
type File interface {
	audit.Source
	io.Closer
}

// Verify compares the ends of the newest chains of a data directory with their signed heads, and describes
// the log. open opens it for reading. The error is not_found if there is no log, or no key: then no server
// ran there yet.
func Verify(ctx context.Context, data string, open func() (File, error)) (detail string, err error) {
	if _, err := os.Stat(filepath.Join(data, KeyFile)); err != nil {
		return "", holdfast.Errorf(holdfast.KindNotFound, KeyFile, "the key file of the audit log cannot be found: %w", err)
	}
	key, err := openKey(data)
	if err != nil {
		return "", err
	}
	file, err := open()
	if err != nil {
		return "", err
	}
	err = audit.Check(ctx, file, key)
	end, _, lerr := file.AuditEnd(ctx, math.MaxInt64)
	since, serr := audit.KeySince(ctx, file)
	if err := cmp.Or(err, lerr, serr, file.Close()); err != nil {
		return "", err
	}
	detail = fmt.Sprintf("chain %d with %d records, signed up to %d, key %s", end.Chain, end.Last.N, end.Head.N, audit.Fingerprint(key.Public()))
	if since > 0 {
		detail += fmt.Sprintf("; the chains before %d are signed with a former key", since)
	}
	return detail, nil
}
