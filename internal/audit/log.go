package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Source reads an audit chain. Safe for concurrent use.
type Source interface {
	// AuditRecords returns up to limit records with numbers after < n <= upto, in order. AuditHeads
	// returns heads in the same way.
	AuditRecords(ctx context.Context, after, upto int64, limit int) ([]Record, error)
	AuditHeads(ctx context.Context, after, upto int64, limit int) ([]Head, error)
	// AuditLast returns the last record and the newest head; the zero value if there is none.
	AuditLast(ctx context.Context) (Record, Head, error)
}

// Store stores an audit chain and its heads. Safe for concurrent use.
type Store interface {
	Source
	// AuditTip returns the newest place in the chain that is on disk: that of the last record, or
	// of the newest head if that has a higher number, so that no number is used twice.
	AuditTip() Link
	// PutAuditHead stores a head, unless there is one for its number already.
	PutAuditHead(ctx context.Context, h Head) error
}

const (
	// SignEvery is the number of records after which a head is signed at the latest, SignAfter the
	// time after the first of them.
	SignEvery = 256
	SignAfter = 10 * time.Second
)

// Config configures a Log. All fields are required.
type Config struct {
	Store Store
	Key   Key
	Now   func() time.Time
	// Warn is called with the error if a head could not be stored.
	Warn func(error)
}

// Log signs heads of an audit chain and exports the chain. Safe for concurrent use.
type Log struct {
	cfg Config
	// signed is the number of the newest record with a head; pending is true after the signer was
	// woken.
	signed  atomic.Int64
	pending atomic.Bool
	// wake signals that there are records without a head, full that a head is due at once.
	wake, full chan struct{}
	stop       chan struct{}
	once       sync.Once
	run        sync.WaitGroup
}

// NewLog returns a log. It signs heads by itself once Start was called.
func NewLog(cfg Config) *Log {
	return &Log{cfg: cfg, wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Wake tells the log that the chain has grown to record n. It never blocks.
func (l *Log) Wake(n int64) {
	var c chan struct{}
	switch d := n - l.signed.Load(); {
	case d >= SignEvery:
		c = l.full
	case d > 0 && !l.pending.Swap(true):
		c = l.wake
	default:
		return
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

// Start signs records that a former server left without a head, and then new ones in the background
// until Close.
func (l *Log) Start(ctx context.Context) error {
	_, head, err := l.cfg.Store.AuditLast(ctx)
	if err != nil {
		return err
	}
	l.signed.Store(head.N)
	l.run.Go(func() {
		for l.sign(ctx); l.gather(); {
			l.sign(ctx)
		}
		l.sign(ctx)
	})
	return nil
}

// Close signs the last head and ends the goroutine of Start. Idempotent.
func (l *Log) Close() {
	l.once.Do(func() { close(l.stop) })
	l.run.Wait()
}

// gather waits until a head is due. It returns false if the log closes.
func (l *Log) gather() bool {
	select {
	case <-l.stop:
		return false
	case <-l.full:
		return true
	case <-l.wake:
	}
	due := time.NewTimer(SignAfter)
	defer due.Stop()
	select {
	case <-l.stop:
		return false
	case <-l.full:
	case <-due.C:
	}
	return true
}

func (l *Log) sign(ctx context.Context) {
	l.pending.Store(false)
	if l.cfg.Store.AuditTip().N == l.signed.Load() {
		return
	}
	if _, err := l.Head(ctx); err != nil {
		l.cfg.Warn(err)
	}
}

// Head signs the newest place in the chain, stores the head and returns it. The head of an empty
// chain is not stored.
func (l *Log) Head(ctx context.Context) (holdfast.AuditHead, error) {
	h, err := l.head(ctx)
	return h.Wire(l.cfg.Key), err
}

func (l *Log) head(ctx context.Context) (Head, error) {
	h := l.cfg.Key.Sign(l.cfg.Store.AuditTip(), l.cfg.Now())
	if h.N == 0 {
		return h, nil
	}
	err := l.cfg.Store.PutAuditHead(ctx, h)
	if err == nil {
		l.signed.Store(h.N)
	}
	return h, err
}

// Check compares the end of the chain with the newest signed head. It returns an internal error if
// signed records are missing, if the signed record was changed, or if the head was signed with
// another key. It does not check older records; an export does.
func Check(ctx context.Context, src Source, k Key) error {
	public, err := ParsePublic(k.Public())
	if err != nil {
		return err
	}
	last, head, err := src.AuditLast(ctx)
	if err != nil || head.N == 0 {
		return err
	}
	damaged := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindInternal, "audit", format, args...).
			WithHint("keep a copy of the data directory, then compare: holdfast audit export | holdfast audit verify -")
	}
	if !head.Valid(public) {
		return damaged("the newest head of the audit chain, of record %d, is not signed with audit.key", head.N)
	}
	if head.N > last.N {
		return damaged("the audit chain was cut: a signed head names record %d of %s, but the last record is %d",
			head.N, head.Time.Format(time.RFC3339), last.N)
	}
	at, err := src.AuditRecords(ctx, head.N-1, head.N, 1)
	if err != nil {
		return err
	}
	if len(at) != 1 || at[0].Hash != head.Hash || at[0].recomputed() != head.Hash {
		return damaged("the audit chain was changed: record %d is not the one that its signed head names", head.N)
	}
	return nil
}
