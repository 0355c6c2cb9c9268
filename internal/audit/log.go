package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Source is what a chain is read from. Safe for concurrent use.
type Source interface {
	// AuditRecords returns up to limit records with after < n <= upto, in order, and
	// AuditHeads the same of heads.
	AuditRecords(ctx context.Context, after, upto int64, limit int) ([]Record, error)
	AuditHeads(ctx context.Context, after, upto int64, limit int) ([]Head, error)
	// AuditLast is the last record and the newest head; zero without one.
	AuditLast(ctx context.Context) (Record, Head, error)
}

// Store is what keeps the chain. Safe for concurrent use.
type Store interface {
	Source
	// AuditTip is the newest place in the chain that is on disk. Where signed heads
	// go beyond the last record it is the newest head: no number is used twice.
	AuditTip() Link
	// PutAuditHead keeps a head; the first of a number stays.
	PutAuditHead(ctx context.Context, h Head) error
}

const (
	// SignEvery is after how many records a head is signed at the latest, SignAfter
	// how long after the first of them.
	SignEvery = 256
	SignAfter = 10 * time.Second
)

// Config configures a Log. All fields are required.
type Config struct {
	Store Store
	Key   Key
	Now   func() time.Time
	// Warn hears of heads that could not be kept.
	Warn func(error)
}

// Log signs heads of a chain and exports it. Safe for concurrent use.
type Log struct {
	cfg Config
	// signed is the newest record with a head; pending: the signer was told.
	signed  atomic.Int64
	pending atomic.Bool
	// wake: there are records without a head; full: so many that one is due.
	wake, full chan struct{}
	stop       chan struct{}
	once       sync.Once
	run        sync.WaitGroup
}

// NewLog makes a log; Start makes it sign by itself.
func NewLog(cfg Config) *Log {
	return &Log{cfg: cfg, wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Wake says that the chain has grown to record n. It never blocks.
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

// Start begins to sign heads behind the commits, until Close, and first what a
// former server left without one.
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

// Close signs the last head and ends what Start began. Idempotent.
func (l *Log) Close() {
	l.once.Do(func() { close(l.stop) })
	l.run.Wait()
}

// gather waits until a head is due; false: the log closes.
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

// Head signs the newest place in the chain, keeps the head and returns it. An
// empty chain has a head that is not kept.
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

// Check compares the last record with the newest signed head: internal when
// records that were signed are gone or other ones, or the head is of another key.
// It says nothing of older records: an export does.
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
		return damaged("the audit chain was cut: a signed head names record %d of %s, the last one there is %d",
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
