package audit

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Source reads an audit log: the chains of all server starts. Safe for concurrent use.
type Source interface {
	// AuditRecords returns up to limit records in order, with places above after and not above upto.
	// AuditHeads returns signed heads in the same way.
	AuditRecords(ctx context.Context, after, upto Place, limit int) ([]Record, error)
	AuditHeads(ctx context.Context, after, upto Place, limit int) ([]Head, error)
	// AuditEnd returns the end of the newest chain with a number below before; false if there is none.
	AuditEnd(ctx context.Context, before int64) (End, bool, error)
}

// End is the end of a chain: its last record and its newest signed head. A field is the zero value if the
// chain has none.
type End struct {
	Chain int64
	Last  Record
	Head  Head
}

// Link returns the last known record of the chain: the last stored one, or the one that the newest head names
// if its number is higher, because then the records up to it are lost.
func (e End) Link() Link {
	if e.Head.N > e.Last.N {
		return e.Head.Link
	}
	return e.Last.Link
}

// Store stores an audit log. The server that uses it writes one chain, whose number is higher than
// that of every chain before; its first record was written when the store was opened. Safe for
// concurrent use.
type Store interface {
	Source
	// AuditTip returns the newest record of the server's own chain that is on disk.
	AuditTip() Link
	// PutAuditHead stores a head, unless the store already has a head for the same record.
	PutAuditHead(ctx context.Context, h Head) error
}

const (
	// A head is signed after SignEvery records, or SignAfter after the first record without a head, whichever
	// comes first.
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

// Log signs heads of the server's chain and exports the audit log. Safe for concurrent use.
type Log struct {
	cfg Config
	// signed is the number of the newest record of the chain that has a signed head. pending is true from
	// when the signer was woken until it begins to sign.
	signed  atomic.Int64
	pending atomic.Bool
	// wake tells the signer that there are records without a head, full that it must sign a head at once.
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

// Start begins to sign records in the background, until Close.
func (l *Log) Start(ctx context.Context) {
	l.Wake(l.cfg.Store.AuditTip().N)
	l.run.Go(func() {
		for l.gather() {
			l.sign(ctx)
		}
		l.sign(ctx)
	})
}

// Close signs a last head and ends the goroutine that Start began. Idempotent.
func (l *Log) Close() {
	l.once.Do(func() { close(l.stop) })
	l.run.Wait()
}

// gather waits until it is time to sign a head. It returns false if the log is being closed.
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

// Head signs the newest record of the server's chain, stores the head and returns it.
func (l *Log) Head(ctx context.Context) (holdfast.AuditHead, error) {
	h, err := l.head(ctx)
	return h.Wire(l.cfg.Key), err
}

func (l *Log) head(ctx context.Context) (Head, error) {
	h := l.cfg.Key.Sign(l.cfg.Store.AuditTip(), l.cfg.Now())
	err := l.cfg.Store.PutAuditHead(ctx, h)
	if err == nil {
		l.signed.Store(h.N)
	}
	return h, err
}

// checkChains is how many of the newest chains Check looks at.
const checkChains = 8

// Check compares the ends of the newest chains with their newest signed heads and with the places
// that other chains name. It returns an internal error if records are missing, if such a record
// was changed, or if a head was signed with another key and no record says that the key was replaced
// after it. It does not check other records; an export does.
func Check(ctx context.Context, src Source, k Key) error {
	public, err := ParsePublic(k.Public())
	if err != nil {
		return err
	}
	before := int64(math.MaxInt64)
	replaced := false
	for range checkChains {
		end, ok, err := src.AuditEnd(ctx, before)
		if err != nil || !ok {
			return err
		}
		if !replaced && end.Head.N > 0 && !end.Head.Valid(public) {
			return otherKey(end)
		}
		if err := checkEnd(ctx, src, end); err != nil {
			return err
		}
		former, err := checkLinks(ctx, src, end.Chain)
		if err != nil {
			return err
		}
		if former != nil {
			if err := checkFormer(ctx, src, end.Chain, *former); err != nil {
				return err
			}
			replaced = true
		}
		before = end.Chain
	}
	return nil
}

func damaged(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInternal, "audit", format, args...).
		WithHint("keep a copy of the data directory, then check the audit log: holdfast audit export | holdfast audit verify -")
}

func otherKey(end End) error {
	return holdfast.Errorf(holdfast.KindInternal, "audit", "the newest head of audit chain %d, of record %s, is not signed with audit.key", end.Chain, end.Head).
		WithHint("put the former audit.key back from a backup; if you replaced the key on purpose, move audit.key away, stop the server, and make a new key with: holdfast audit new-key --data DIR")
}

// checkFormer compares the heads before a chain that began with a new key with the hash in its first
// record.
func checkFormer(ctx context.Context, src Source, chain int64, said Former) error {
	have, err := FormerHeads(ctx, src, chain)
	if err == nil && have != said {
		err = damaged("the signed heads of the audit chains before %d, which are those of a former key, were changed", chain)
	}
	return err
}

// checkEnd compares the end of a chain with its newest head.
func checkEnd(ctx context.Context, src Source, end End) error {
	head, last := end.Head, end.Last
	switch {
	case head.N == 0:
		return nil
	case head.N > last.N:
		return damaged("audit chain %d was cut: a signed head names record %s of %s, but the last record is %s",
			end.Chain, head, head.Time.Format(time.RFC3339), Place{Chain: end.Chain, N: last.N})
	}
	if same, err := has(ctx, src, head.Link); err != nil || same {
		return err
	}
	return damaged("audit chain %d was changed: record %s is not the one that its signed head names", end.Chain, head)
}

// checkLinks compares the places that the first record of a chain names with the records there. It returns the
// description of the heads of a former key in that record, or nil if the record has none. It checks nothing in chain 0.
func checkLinks(ctx context.Context, src Source, chain int64) (*Former, error) {
	before := Place{Chain: chain}
	first, err := src.AuditRecords(ctx, before, Place{Chain: chain, N: 1}, 1)
	if err != nil || chain == 0 {
		return nil, err
	}
	var f fields
	if len(first) != 1 || json.Unmarshal(first[0].line(nil), &f) != nil || f.Type != ChainHeads {
		return nil, damaged("audit chain %d was changed: its first record does not name the chains before", chain)
	}
	found, former, ok := named(f.Data)
	if !ok {
		return nil, damaged("audit chain %d was changed: its first record is not valid", chain)
	}
	for _, l := range found {
		if same, err := has(ctx, src, l); err != nil {
			return nil, err
		} else if !same {
			return nil, damaged("audit chain %d was cut or changed: the first record of chain %d names record %s", l.Chain, chain, l)
		}
	}
	return former, nil
}

// has reports whether the log has the record that a link names, unchanged.
func has(ctx context.Context, src Source, l Link) (bool, error) {
	at, err := src.AuditRecords(ctx, Place{Chain: l.Chain, N: l.N - 1}, l.Place, 1)
	return len(at) == 1 && at[0].Hash == l.Hash && at[0].recomputed() == l.Hash, err
}
