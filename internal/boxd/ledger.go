package boxd

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// call is a mutating operation in the ledger: it is running, or finished but not released.
type call struct {
	id   holdfast.CallID
	op   wire.Op
	hash string
	// session is the session that made the call.
	session holdfast.SessionID
	// seq is the number of the call in the order of their starts.
	seq uint64
	// exec is the execution of an OpExec call; nil for other operations. It is set before the call is in the ledger.
	exec *execution
	// done is closed once answer or err is set.
	done   chan struct{}
	answer json.RawMessage
	err    *wire.Error
	// flushed is true if the outcome was read from the file that a former life of the box has saved.
	flushed bool
	// forget is true if the call is to be released as soon as it finishes.
	forget bool
}

func (c *call) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ledger holds each mutating call until it is released, and records which connection may act. Under mu it checks
// in one step that no other connection has replaced that of a new call, and registers the call.
type ledger struct {
	maxHeld int
	// onRelease is called with each released call, without the lock.
	onRelease func(*call)

	mu       sync.Mutex
	calls    map[holdfast.CallID]*call
	seq      uint64
	running  int
	token    uint64
	current  *peer
	stopping bool
}

func newLedger(maxHeld int, onRelease func(*call)) *ledger {
	return &ledger{maxHeld: maxHeld, onRelease: onRelease, calls: map[holdfast.CallID]*call{}}
}

// switchTo makes p the only connection that may act. It returns the one before, or nil, and all held calls.
func (l *ledger) switchTo(p *peer, token uint64) (before *peer, calls []wire.CallState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.current, l.token = l.current, p, token
	return before, l.list("")
}

// drop records that the connection p has ended.
func (l *ledger) drop(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == p {
		l.current = nil
	}
}

// highest returns the highest fencing token seen so far.
func (l *ledger) highest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// attached reports whether a server is connected.
func (l *ledger) attached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current != nil
}

// check returns an error if another connection has replaced p (HZ-3).
func (l *ledger) check(p *peer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkLocked(p)
}

// guard runs fn if connection p may act, and otherwise returns an error. It holds the ledger's lock during
// fn, so that no other connection can replace p meanwhile. fn must be short, and must not take a lock
// that is held while a method of the ledger is called.
func (l *ledger) guard(p *peer, fn func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkLocked(p); err != nil {
		return err
	}
	fn()
	return nil
}

func (l *ledger) checkLocked(p *peer) error {
	if l.current != p {
		return holdfast.Errorf(holdfast.KindConflict, "boxd", "the connection with fencing token %d was replaced by another one; the highest token of a connection is %d", p.token, l.token).
			WithHint("another server or another connection controls this box now")
	}
	return nil
}

// sees reports whether the session asks may see the call: it made the call, or it is empty (the server itself).
func (c *call) sees(asks holdfast.SessionID) bool { return asks == "" || asks == c.session }

// begin finds the call of a request, or adds it to the ledger, right before the caller acts. If fresh is
// true, the call is new: the caller must act and then call finish. If build is not nil, begin calls it
// with a new call, under the lock and after all checks.
func (l *ledger) begin(p *peer, req wire.Request, build func(*call)) (c *call, fresh bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkLocked(p); err != nil {
		return nil, false, err
	}
	if c, err := l.findLocked(req); c != nil || err != nil {
		return c, false, err
	}
	if l.stopping {
		return nil, false, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "the box is stopping and starts no new call")
	}
	if len(l.calls) >= l.maxHeld {
		return nil, false, holdfast.Errorf(holdfast.KindBusy, "boxd", "the box holds %d unreleased calls, the most it may hold", len(l.calls)).
			WithHint("release finished calls, then try again")
	}
	l.seq++
	c = &call{id: req.Call, session: req.Session, op: req.Op, hash: req.Hash, seq: l.seq, done: make(chan struct{})}
	if build != nil {
		build(c)
	}
	l.calls[c.id] = c
	l.running++
	return c, true, nil
}

// find returns the call with the id in the request, or nil if the ledger has none. It is an error if the call is of
// another session or has another operation or other arguments; a request without a hash matches any arguments.
func (l *ledger) find(p *peer, req wire.Request) (*call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkLocked(p); err != nil {
		return nil, err
	}
	return l.findLocked(req)
}

func (l *ledger) findLocked(req wire.Request) (*call, error) {
	c := l.calls[req.Call]
	if c == nil {
		return nil, nil
	}
	if !c.sees(req.Session) {
		return nil, holdfast.Errorf(holdfast.KindConflict, "boxd", "the call id %s belongs to a call of another session", holdfast.Quote(string(req.Call))).
			WithHint("make a new id for a new call")
	}
	if c.op != req.Op || req.Hash != "" && c.hash != req.Hash {
		return nil, holdfast.Errorf(holdfast.KindConflict, "boxd", "the box holds call %s with another operation or other arguments", holdfast.Quote(string(req.Call))).
			WithHint("a call id binds one operation and its arguments: make a new id for a new call")
	}
	return c, nil
}

// seen returns the call with that id, or nil if the session asks sees no such call. The caller holds the lock.
func (l *ledger) seen(asks holdfast.SessionID, id holdfast.CallID) *call {
	if c := l.calls[id]; c != nil && c.sees(asks) {
		return c
	}
	return nil
}

// finish stores the outcome of a call and closes its channel done.
func (l *ledger) finish(c *call, answer any, err error) {
	if err != nil {
		c.err = wire.AsError(err)
	} else if b, jerr := json.Marshal(answer); jerr == nil {
		c.answer = b
	} else {
		c.err = wire.AsError(jerr)
	}
	l.mu.Lock()
	l.running--
	close(c.done)
	forget := c.forget
	if forget {
		delete(l.calls, c.id)
	}
	l.mu.Unlock()
	if forget {
		l.onRelease(c)
	}
}

// forgetWhenDone makes the ledger release a call as soon as it finishes, or now if it has finished.
func (l *ledger) forgetWhenDone(c *call) {
	l.mu.Lock()
	c.forget = true
	gone := c.finished() && l.calls[c.id] == c
	if gone {
		delete(l.calls, c.id)
	}
	l.mu.Unlock()
	if gone {
		l.onRelease(c)
	}
}

// release removes finished calls from the ledger. It ignores an entry if there is no call with its id, if
// the call is running, or if the session of the entry may not see the call.
func (l *ledger) release(p *peer, list []wire.Released) error {
	l.mu.Lock()
	if err := l.checkLocked(p); err != nil {
		l.mu.Unlock()
		return err
	}
	var gone []*call
	for _, r := range list {
		if c := l.calls[r.Call]; c != nil && c.finished() && c.sees(r.Session) {
			delete(l.calls, c.id)
			gone = append(gone, c)
		}
	}
	l.mu.Unlock()
	for _, c := range gone {
		l.onRelease(c)
	}
	return nil
}

// states lists the held calls that the session asks may see, oldest first.
func (l *ledger) states(asks holdfast.SessionID) []wire.CallState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list(asks)
}

func (l *ledger) list(asks holdfast.SessionID) []wire.CallState {
	out := make([]wire.CallState, 0, len(l.calls))
	for _, c := range l.sorted() {
		if !c.sees(asks) {
			continue
		}
		st := wire.CallState{Call: c.id, Session: c.session, Op: c.op, Hash: c.hash, Status: wire.CallRunning}
		if c.finished() {
			st.Status = wire.CallFinished
		}
		out = append(out, st)
	}
	return out
}

func (l *ledger) sorted() []*call {
	all := make([]*call, 0, len(l.calls))
	for _, c := range l.calls {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// held returns the held calls, oldest first.
func (l *ledger) held() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sorted()
}

func (l *ledger) counts() (held, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls), l.running
}

// stop makes the ledger refuse new calls.
func (l *ledger) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopping = true
}

// adopt adds a call that finished in a former life of the box.
func (l *ledger) adopt(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	c.seq = l.seq
	close(c.done)
	l.calls[c.id] = c
}
