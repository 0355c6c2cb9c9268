package db

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// batchOps and batchBytes limit the Ops and the bytes of one transaction, so that one
	// caller's large write does not delay many small ones for long.
	batchOps   = 512
	batchBytes = 8 << 20
	// gatherTime is how long a busy writer waits at most for as many Ops as usual, a few times the duration of a commit
	// on a fast disk; moreTime is how long it then waits for more. Both are short compared with a turn (ADR 0107).
	gatherTime = 2 * time.Millisecond
	moreTime   = gatherTime / 8
)

// Op is a change for the writer. Plan, which may be nil, reads and decides, and writes
// nothing; if it returns a *holdfast.Error, only this Op is refused. Apply writes what Plan
// decided; an error of Apply means that the database failed. Then the whole transaction is rolled
// back and, unless the disk failed or is full, its Ops are tried again one by one. So both functions can run twice.
type Op struct {
	Plan, Apply func(*Tx) error
	// Weight is about how many bytes Apply writes.
	Weight int
	// Admits is true for an Op that brings new work, such as a session or a message. When disk
	// space runs out, such Ops are refused first.
	Admits bool

	state atomic.Int32 // one of opWaiting, opTaken and opGivenUp
	done  chan error
}

const (
	opWaiting = iota
	opTaken
	opGivenUp
)

// Tx is one transaction of the writer.
type Tx struct {
	// Ctx is for the statements of the transaction.
	Ctx context.Context
	// Now is the time of the transaction, NowMS the same in milliseconds.
	Now   time.Time
	NowMS int64
	// Pages estimates by how many pages this transaction extends the write-ahead log. Each Apply
	// adds its own share.
	Pages int

	numbers *numbers
}

// queue holds the Ops that wait for the writer, in order of arrival.
type queue struct {
	mu     sync.Mutex
	ops    []*Op
	closed bool
	want   int           // put wakes the writer when this many Ops are queued
	wake   chan struct{} // capacity 1; signals that as many Ops as wanted are queued, or that the queue was closed
	// crowd estimates how many Ops come at the same time: if a batch is larger it becomes the batch's size,
	// otherwise it falls by one with each batch. Only the writer uses it.
	crowd int
}

// put appends an Op. It returns false if the queue is closed.
func (q *queue) put(o *Op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if q.ops = append(q.ops, o); len(q.ops) >= q.want {
		poke(q.wake)
	}
	return true
}

// take waits for Ops and returns the next batch of them. It returns nil once the queue is closed
// and empty.
func (q *queue) take() []*Op {
	for {
		q.gather()
		q.mu.Lock()
		var out []*Op
		n, bytes := 0, 0
		for n < len(q.ops) && len(out) < batchOps && (len(out) == 0 || bytes < batchBytes) {
			o := q.ops[n]
			n++
			if o.state.CompareAndSwap(opWaiting, opTaken) {
				out = append(out, o)
				bytes += o.Weight
			}
		}
		clear(q.ops[:n])
		if q.ops = q.ops[n:]; len(q.ops) == 0 {
			q.ops = nil
		}
		closed := q.closed
		q.want = 1
		q.mu.Unlock()
		if len(out) > 0 {
			q.crowd = max(len(out), q.crowd-1)
			return out
		}
		if closed {
			return nil
		}
		<-q.wake
	}
}

// gather waits for goroutines that are about to queue an Op, so that their Ops share one
// transaction and its fsync. It yields to them while more Ops arrive, which costs almost nothing on
// an idle machine. If fewer arrive than came at the same time before, other sessions are at work and
// will soon have more: gather then waits until there are as many, for 2 ms at most, and a
// little longer, so that the batches grow with the load.
func (q *queue) gather() {
	if n := q.yield(); n == 0 || n >= q.crowd {
		return
	}
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	for q.await(q.crowd) < q.crowd {
		select {
		case <-q.wake:
		case <-timer.C:
			return
		}
	}
	time.Sleep(moreTime)
}

// yield lets other goroutines run as long as that brings more Ops. It returns how many Ops are queued.
func (q *queue) yield() int {
	for before := -1; ; {
		runtime.Gosched()
		n := q.await(1)
		if n <= before || n >= batchOps {
			return n
		}
		before = n
	}
}

// await sets how many queued Ops wake the writer, and returns how many are queued now.
func (q *queue) await(want int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.want = want
	return len(q.ops)
}

// close makes put refuse further Ops. Queued Ops are still carried out.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	poke(q.wake)
}

// poke sends to a channel of capacity 1, unless an unreceived signal is already in it.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
