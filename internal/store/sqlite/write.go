package sqlite

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
)

const (
	// batchOps and batchBytes bound one transaction, so that one caller's large
	// write does not hold up many small ones for long.
	batchOps   = 512
	batchBytes = 8 << 20
)

// op is a unit of work for the writer. plan reads and decides, writing nothing;
// its refusal answers this op alone. apply writes what plan decided; it fails
// only when the database does, and then the whole batch is undone and tried
// again one op at a time. Both may run twice.
type op struct {
	plan, apply func(*tx) error
	weight      int
	// admits: it brings new work, which a store that is short of space refuses first.
	admits bool

	state atomic.Int32 // opWaiting, opTaken or opGivenUp
	done  chan error
}

const (
	opWaiting = iota
	opTaken
	opGivenUp
)

// queue holds what waits for the writer, in order of arrival.
type queue struct {
	mu     sync.Mutex
	ops    []*op
	closed bool
	wake   chan struct{} // capacity 1
}

func (q *queue) put(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.ops = append(q.ops, o)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take waits for work and returns a batch; nil after close, when all is done.
func (q *queue) take() []*op {
	for {
		q.gather()
		q.mu.Lock()
		var out []*op
		n, bytes := 0, 0
		for n < len(q.ops) && len(out) < batchOps && (len(out) == 0 || bytes < batchBytes) {
			o := q.ops[n]
			n++
			if o.state.CompareAndSwap(opWaiting, opTaken) {
				out = append(out, o)
				bytes += o.weight
			}
		}
		clear(q.ops[:n])
		if q.ops = q.ops[n:]; len(q.ops) == 0 {
			q.ops = nil
		}
		closed := q.closed
		q.mu.Unlock()
		if len(out) > 0 {
			return out
		}
		if closed {
			return nil
		}
		<-q.wake
	}
}

// gather lets those write first who are about to: they share the transaction and
// its fsync. It goes on while more come, and costs nothing on an idle machine.
func (q *queue) gather() {
	for before := -1; ; {
		runtime.Gosched()
		q.mu.Lock()
		n := len(q.ops)
		q.mu.Unlock()
		if n <= before || n >= batchOps {
			return
		}
		before = n
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// do has the writer carry out an op. A ctx that ends before the writer took the
// op withdraws it; after that the answer is awaited, because it would be unknown
// otherwise.
func (s *Store) do(ctx context.Context, name string, o *op) error {
	if e := s.room.refuses(o.admits); e != nil {
		return e
	}
	return s.put(ctx, name, o)
}

// put is do without the check for a full disk.
func (s *Store) put(ctx context.Context, name string, o *op) error {
	o.done = make(chan error, 1)
	if !s.queue.put(o) {
		return holdfast.Errorf(holdfast.KindUnavailable, name, "the store is closed")
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
	}
	if o.state.CompareAndSwap(opWaiting, opGivenUp) {
		return failure(name, context.Cause(ctx))
	}
	return <-o.done
}

// write is the writer goroutine. It ends when the queue is closed and empty.
func (s *Store) write(ctx context.Context) {
	for {
		ops := s.queue.take()
		if ops == nil {
			return
		}
		s.batch(ctx, ops)
	}
}

func (s *Store) batch(ctx context.Context, ops []*op) {
	s.gate.Lock()
	defer s.gate.Unlock()
	answers := make([]error, len(ops))
	err := s.transact(ctx, ops, answers)
	switch {
	case err == nil:
	case len(ops) > 1 && !refused(err) && !lost(err) && !s.noSpace(err):
		for i := range ops {
			if err := s.transact(ctx, ops[i:i+1], answers[i:i+1]); err != nil {
				answers[i] = s.broke(err)
			}
		}
	default:
		err = s.broke(err)
		for i := range answers {
			answers[i] = err
		}
	}
	for i, o := range ops {
		o.done <- answers[i]
	}
}

// tx is one transaction of the writer. It carries the time.
type tx struct {
	ctx   context.Context
	s     *Store
	now   time.Time
	nowMS int64
	// touched are the sessions whose cached state is ahead of the disk, or gone.
	touched []holdfast.SessionID
	// events wait to be inserted together.
	events []eventRow
	// chain is the end of the audit chain as this transaction sees it; records wait
	// to be inserted together.
	chain   audit.Link
	records []audit.Record
	// ruled are the keys whose permission rules change.
	ruled []string
	// outbox: something is to be delivered.
	outbox bool
	// pages estimates how much the write-ahead log grows.
	pages int
}

// transact runs ops in one transaction. An error means that nothing of them was
// written; answers then say nothing.
func (s *Store) transact(ctx context.Context, ops []*op, answers []error) (err error) {
	if e := s.room.broken.Load(); e != nil {
		return e
	}
	now := s.cfg.Clock().UTC().Truncate(time.Millisecond)
	t := &tx{ctx: ctx, s: s, now: now, nowMS: now.UnixMilli(), chain: s.AuditTip(), pages: 2}
	if _, err := s.w.begin.ExecContext(ctx); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, id := range t.touched {
			s.cache.drop(id)
		}
		// SQLite itself rolls back after some errors; then this one fails.
		_, _ = s.w.rollback.ExecContext(ctx)
	}()
	if err := t.fence(); err != nil {
		return err
	}
	written := 0
	for i, o := range ops {
		answers[i] = nil
		if err := o.plan(t); err != nil {
			if !refused(err) {
				return err
			}
			answers[i] = err
			continue
		}
		if err := o.apply(t); err != nil {
			return err
		}
		written++
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.flushAudit(); err != nil {
		return err
	}
	if written == 0 {
		_, err := s.w.rollback.ExecContext(ctx)
		return err
	}
	if f := s.commitFault; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	if _, err := s.w.commit.ExecContext(ctx); err != nil {
		return err
	}
	t.keepTip()
	if t.outbox {
		s.cfg.Outbox()
	}
	s.recent.put(t.touched, s.cache.get)
	s.recent.reruled(t.ruled)
	s.index.touch(t.touched...)
	s.janitor.wrote(t.pages, s.cfg.CheckpointBytes)
	return nil
}

// fence looks, within the transaction, whether another connection has written since
// it last looked; then it compares the epoch and forgets the cache.
func (t *tx) fence() error {
	var version int64
	if err := t.s.w.version.QueryRowContext(t.ctx).Scan(&version); err != nil {
		return err
	}
	if version == t.s.cache.version {
		return nil
	}
	var epoch uint64
	if err := t.s.w.epoch.QueryRowContext(t.ctx).Scan(&epoch); err != nil {
		return err
	}
	if epoch != t.s.epoch {
		e := holdfast.Errorf(holdfast.KindConflict, "store.commit",
			"another server took over this data directory (epoch %d, ours is %d)", epoch, t.s.epoch).
			WithHint("look for the other holdfast server on %s and stop one of the two", t.s.cfg.Path)
		t.s.room.broken.CompareAndSwap(nil, e)
		return e
	}
	t.s.cache.reset(version)
	t.s.recent.forget()
	return nil
}
