package egress

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// gatherFor is how long repetitions of a decision are counted before one event records them.
	gatherFor = 10 * time.Second
	// maxKinds is how many different decisions of a session are counted separately at the same
	// time; further ones are counted together, without their host and reason.
	maxKinds = 32
)

// Recorder records decisions about network access in the log of a session.
type Recorder interface {
	RecordEgress(ctx context.Context, id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) error
}

// kind identifies decisions that are equal and therefore counted together.
type kind struct {
	session holdfast.SessionID
	typ     holdfast.EventType
	via     string
	host    string
	port    int
	reason  string
}

// gathered counts the repetitions of a decision since it was last recorded.
type gathered struct {
	sum   holdfast.EgressDecision
	timer *time.Timer
}

// ledger records decisions in the log of their session. It records the first decision of a kind at once, and
// its repetitions summed up in one event each gatherFor, so that a box with a thousand requests a second does
// not fill the log. Safe for concurrent use.
type ledger struct {
	to  Recorder
	now func() time.Time
	log *slog.Logger
	ctx context.Context

	mu     sync.Mutex
	open   map[kind]*gathered
	kinds  map[holdfast.SessionID]int
	closed bool
	busy   sync.WaitGroup
}

// newLedger returns a ledger that records with ctx, which must not end before close.
func newLedger(ctx context.Context, to Recorder, now func() time.Time, log *slog.Logger) *ledger {
	return &ledger{ctx: ctx, to: to, now: now, log: log, open: map[kind]*gathered{}, kinds: map[holdfast.SessionID]int{}}
}

func (l *ledger) add(id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) {
	k := kind{id, typ, d.Via, d.Host, d.Port, d.Reason}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	g := l.open[k]
	if g == nil && l.kinds[id] >= maxKinds {
		k.host, k.port, k.reason = "", 0, ""
		g = l.open[k]
		d.Host, d.Port, d.Path, d.Address, d.Rule, d.Reason = "*", 0, "", "", "", "many others"
	}
	if g != nil {
		l.count(&g.sum, d)
		l.mu.Unlock()
		return
	}
	g = &gathered{}
	l.open[k] = g
	l.kinds[id]++
	g.timer = time.AfterFunc(gatherFor, func() { l.flush(k, g) })
	l.busy.Add(1)
	l.mu.Unlock()
	defer l.busy.Done()
	l.record(id, typ, d)
}

func (l *ledger) count(sum *holdfast.EgressDecision, d holdfast.EgressDecision) {
	n, sent, received, took := sum.Count+1, sum.Sent+d.Sent, sum.Received+d.Received, sum.DurationMS+d.DurationMS
	*sum = d
	last := l.now().UTC().Truncate(time.Millisecond)
	sum.Count, sum.Sent, sum.Received, sum.DurationMS, sum.Last = n, sent, received, took, &last
}

// flush records the repetitions of a kind since its last event. If there were none, it removes the kind from
// the ledger.
func (l *ledger) flush(k kind, g *gathered) {
	l.mu.Lock()
	if l.closed || l.open[k] != g {
		l.mu.Unlock()
		return
	}
	sum := g.sum
	g.sum = holdfast.EgressDecision{}
	if sum.Count == 0 {
		l.forget(k)
	} else {
		g.timer.Reset(gatherFor)
	}
	l.busy.Add(1)
	l.mu.Unlock()
	defer l.busy.Done()
	if sum.Count > 0 {
		l.record(k.session, k.typ, sum)
	}
}

// forget removes a kind from the ledger. The caller holds l.mu.
func (l *ledger) forget(k kind) {
	delete(l.open, k)
	if l.kinds[k.session]--; l.kinds[k.session] == 0 {
		delete(l.kinds, k.session)
	}
}

func (l *ledger) record(id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) {
	if err := l.to.RecordEgress(l.ctx, id, typ, d); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		l.log.Warn("a decision about network access was not recorded", "session_id", id, "type", typ, "host", d.Host, "error", err)
	}
}

// close records the counted repetitions. Later decisions are ignored.
func (l *ledger) close() {
	l.mu.Lock()
	l.closed = true
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for k, g := range open {
		g.timer.Stop()
		if g.sum.Count > 0 {
			l.record(k.session, k.typ, g.sum)
		}
	}
	l.busy.Wait()
}
