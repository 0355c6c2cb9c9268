package journal

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// page is the most events that are read from the store at once while the caller waits for them, longPage the most
// in a page that is read in advance.
const (
	page     = 256
	longPage = 1000
	// pagesAhead is the most pages that are read in advance while the caller handles the current page.
	pagesAhead = 2
)

// Journal appends and reads the logs of all sessions. Safe for concurrent use. For sessions that
// have readers, or had some recently, it caches the newest events.
type Journal struct {
	store    Store
	leases   Leases
	scope    func(holdfast.SessionID) holdfast.BoxID
	notifier Notifier
	clock    func() time.Time
	lim      limits
	// writers holds one lock for each session that a change is being committed to.
	writers writers

	mu    sync.RWMutex
	feeds map[holdfast.SessionID]*feed
	idle  *list.List // the *feed of sessions without readers; the feed that lost its readers last is at the back
}

// Config configures a Journal. Zero values take the defaults.
type Config struct {
	Store Store
	// Leases gives the lease token for each change. If it is nil, changes carry no token, and a store that
	// checks tokens refuses them. Scope returns the scope of a session (default: a scope for each session).
	Leases Leases
	Scope  func(holdfast.SessionID) holdfast.BoxID
	// Notifier is told of all new events, to tell other servers (default: there is no other server on the store).
	Notifier Notifier
	// Clock stamps deltas (default time.Now); the store stamps events.
	Clock func() time.Time
	// Tail is how many recent events of a session with readers are cached (default 256). DeltaBytes is the
	// memory for a session's recent deltas (default 64 KiB): a slow reader gets deltas merged, and misses the
	// oldest. Idle is how many sessions without readers stay cached (default 64), up to 32 KiB of events
	// each.
	Tail, DeltaBytes, Idle int
}

// New makes a journal over a store.
func New(cfg Config) *Journal {
	j := &Journal{
		store: cfg.Store, leases: cfg.Leases, scope: cfg.Scope, notifier: cfg.Notifier,
		clock: cfg.Clock,
		lim:   limits{tail: cfg.Tail, deltaBytes: cfg.DeltaBytes, idle: cfg.Idle},
		feeds: make(map[holdfast.SessionID]*feed),
		idle:  list.New(),
	}
	if j.scope == nil {
		j.scope = holdfast.SessionID.Box
	}
	if j.notifier == nil {
		j.notifier = alone{}
	}
	if j.clock == nil {
		j.clock = time.Now
	}
	if j.lim.tail <= 0 {
		j.lim.tail = 256
	}
	if j.lim.deltaBytes <= 0 {
		j.lim.deltaBytes = 64 << 10
	}
	if j.lim.idle <= 0 {
		j.lim.idle = 64
	}
	return j
}

// Commit writes a change durably and then delivers its events to readers. Changes of one session
// are written one at a time, in the order of the calls; changes of different sessions share
// transactions.
//
// Errors are those of Leases and the store; a payload that cannot be encoded as JSON is internal. After an
// error of kind unavailable the change may or may not have been written.
func (j *Journal) Commit(ctx context.Context, c Change) (Committed, error) {
	defer j.writers.lock(c.Session)()
	var err error
	if c.Token, err = j.token(ctx, c.Session); err != nil {
		return Committed{}, err
	}
	return j.commit(ctx, c)
}

// Note commits one event of a session, even if ctx has ended. A failure is only logged. If the session no
// longer exists, Note does nothing.
func (j *Journal) Note(ctx context.Context, log *slog.Logger, id holdfast.SessionID, d Draft) {
	c := NewChange(id)
	c.Events = []Draft{d}
	if _, err := j.Commit(context.WithoutCancel(ctx), c); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		log.WarnContext(ctx, "an event of the session could not be recorded", "session_id", id, "type", d.Type, "error", err)
	}
}

// CommitAt lets build make a change from the session's current row, and commits it. No other change
// of the session comes between, so build may rely on the row, for example on its LastSeq. If build
// fails or leaves the change empty, nothing is written and the result has the unchanged row. build
// must not commit. Errors are those of build, Store.Row or Commit.
func (j *Journal) CommitAt(ctx context.Context, id holdfast.SessionID, build func(Row, *Change) error) (Committed, error) {
	defer j.writers.lock(id)()
	// Take the lease before reading the row, so that no other server can change the row after that.
	token, err := j.token(ctx, id)
	if err != nil {
		return Committed{}, err
	}
	row, err := j.store.Row(ctx, id)
	if err != nil {
		return Committed{}, err
	}
	c := NewChange(id)
	c.Token = token
	c.LastSeq = row.LastSeq
	if err := build(row, &c); err != nil || c.Empty() {
		return Committed{Row: row}, err
	}
	return j.commit(ctx, c)
}

// commit does the work of Commit for a caller that holds the session's lock.
func (j *Journal) commit(ctx context.Context, c Change) (Committed, error) {
	enc := Encoded{Change: c, Data: make([][]byte, len(c.Events)), json: true}
	for i, d := range c.Events {
		data, err := marshal(d.Data)
		if err != nil {
			return Committed{}, holdfast.Errorf(holdfast.KindInternal, "journal.commit",
				"the payload of event type %s cannot be encoded as JSON: %w", holdfast.Quote(string(d.Type)), err)
		}
		enc.Data[i] = data
	}
	done, err := j.store.Commit(ctx, enc)
	// Look for the feed only now: a reader that joined while the store was writing has created it, because a
	// reader creates the feed before it reads the log's end.
	if f := j.feed(c.Session); f != nil {
		f.append(done.Events)
	}
	if n := len(done.Events); n > 0 {
		j.notifier.Committed(c.Session, done.Events[n-1].Seq)
	}
	return done, err
}

// token returns the lease token for a change of a session.
func (j *Journal) token(ctx context.Context, id holdfast.SessionID) (Token, error) {
	if j.leases == nil {
		return 0, nil
	}
	return j.leases.Acquire(ctx, j.scope(id))
}

// writers serializes the changes of each session. The zero value is ready.
type writers struct {
	mu sync.Mutex
	at map[holdfast.SessionID]*writer
}

// writer is the lock of one session; n is the number of goroutines that hold it or wait for it.
type writer struct {
	sync.Mutex
	n int
}

// lock waits until no other change of the session is being made, and returns the function that lets
// the next one begin.
func (w *writers) lock(id holdfast.SessionID) (unlock func()) {
	w.mu.Lock()
	one := w.at[id]
	if one == nil {
		if w.at == nil {
			w.at = map[holdfast.SessionID]*writer{}
		}
		one = &writer{}
		w.at[id] = one
	}
	one.n++
	w.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		if one.n--; one.n == 0 {
			delete(w.at, id)
		}
	}
}

// Publish sends an unnumbered delta to the live readers of a session. It never blocks, and does
// nothing without readers. A payload that cannot be encoded is dropped: the log will hold the full
// text.
func (j *Journal) Publish(id holdfast.SessionID, typ holdfast.EventType, turn holdfast.TurnID, data any) {
	f := j.feed(id)
	if f == nil || f.refs.Load() == 0 {
		return
	}
	raw, err := marshal(data)
	if err != nil {
		return
	}
	now := j.clock().UTC().Truncate(time.Millisecond)
	f.publish(holdfast.Event{Session: id, Type: typ, Turn: turn, Data: raw, Time: now}, data)
}

// Read is Replay for callers whose decisions depend on the log: it stops with an error at a damaged
// event, because a missing event must not be mistaken for one that never happened.
func (j *Journal) Read(ctx context.Context, id holdfast.SessionID, after int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		for e, err := range j.Replay(ctx, id, after) {
			if err == nil {
				err = e.Whole()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Replay yields the log's events after a sequence number up to the end that the log has at the
// call. A damaged event is yielded as event.damaged. It fails with not_found for an unknown session
// and with invalid for a negative after. The sequence stops at the first error.
func (j *Journal) Replay(ctx context.Context, id holdfast.SessionID, after int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		if after < 0 {
			yield(holdfast.Event{}, badAfter(after, -1))
			return
		}
		head, err := j.store.Head(ctx, id)
		if err != nil {
			yield(holdfast.Event{}, err)
			return
		}
		ahead := readAhead{store: j.store, id: id, head: head}
		defer ahead.stop()
		for after < head {
			var evs []holdfast.Event
			if len(ahead.coming) == 0 {
				evs = j.recent(id, after)
			}
			if len(evs) == 0 {
				evs, err = ahead.page(ctx, after)
			}
			if err != nil {
				yield(holdfast.Event{}, err)
				return
			}
			for _, e := range evs {
				after = e.Seq
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// recent returns the cached events after a sequence number, up to the newest event; none if the next event is
// not cached.
func (j *Journal) recent(id holdfast.SessionID, after int64) []holdfast.Event {
	f := j.feed(id)
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return nil
	}
	if f.event(after) == nil {
		return nil
	}
	out := make([]holdfast.Event, 0, f.head-after)
	for ; after < f.head; after++ {
		out = append(out, f.event(after).Event)
	}
	return out
}

// readPage reads at least one and up to most events of the range (after, upto]. It fails if a number is
// missing between them, because then the log is damaged.
func readPage(ctx context.Context, s Store, id holdfast.SessionID, after, upto, most int64) ([]holdfast.Event, error) {
	evs, err := s.Events(ctx, id, after, int(min(most, upto-after)))
	if err != nil {
		return nil, err
	}
	if len(evs) == 0 {
		if _, err := s.Head(ctx, id); err != nil {
			return nil, err // the session was deleted meanwhile
		}
		return nil, holdfast.Errorf(holdfast.KindInternal, "journal.read",
			"the log of session %s is damaged: it ends at event #%d instead of #%d", id, after, upto)
	}
	for i, e := range evs {
		if e.Seq != after+int64(i)+1 {
			return nil, holdfast.Errorf(holdfast.KindInternal, "journal.read",
				"the log of session %s is damaged: it has event #%d where #%d was expected", id, e.Seq, after+int64(i)+1)
		}
	}
	return evs, nil
}

// readAhead reads a log page by page. From the second page on it reads the following pages in the background
// while the caller handles the current one.
type readAhead struct {
	store Store
	id    holdfast.SessionID
	head  int64
	pages int
	// coming are the pages that are being read in the background, in log order.
	coming []coming
}

// coming is a page that a goroutine is reading.
type coming struct {
	after  int64
	got    chan read
	cancel context.CancelFunc
}

type read struct {
	events []holdfast.Event
	err    error
}

// page returns the page of events that follows the event after, which is the last one of the
// previous page.
func (r *readAhead) page(ctx context.Context, after int64) ([]holdfast.Event, error) {
	if len(r.coming) > 0 && r.coming[0].after != after {
		r.stop() // the previous page had fewer events than expected
	}
	var got read
	if len(r.coming) > 0 {
		got = <-r.coming[0].got
		r.coming[0].cancel()
		r.coming = r.coming[1:]
	} else {
		got.events, got.err = readPage(ctx, r.store, r.id, after, r.head, page)
	}
	r.pages++
	if got.err != nil || r.pages == 1 {
		return got.events, got.err
	}
	// A page that the store cut short has large events: read fewer pages ahead to save memory.
	most := 1
	if len(got.events) >= page {
		most = pagesAhead
	}
	next := got.events[len(got.events)-1].Seq
	if n := len(r.coming); n > 0 && r.coming[0].after == next {
		next = r.coming[n-1].after + longPage
	}
	for ; len(r.coming) < most && next < r.head; next += longPage {
		r.begin(ctx, next)
	}
	return got.events, nil
}

// begin starts to read the page after an event in the background.
func (r *readAhead) begin(ctx context.Context, after int64) {
	ctx, cancel := context.WithCancel(ctx)
	c := coming{after, make(chan read, 1), cancel}
	r.coming = append(r.coming, c)
	go func() {
		events, err := readPage(ctx, r.store, r.id, after, r.head, longPage)
		c.got <- read{events, err}
	}()
}

// stop cancels the background reads and waits for them.
func (r *readAhead) stop() {
	for _, c := range r.coming {
		c.cancel()
		<-c.got
	}
	r.coming = nil
}

// Readers returns the number of open readers.
func (j *Journal) Readers() int {
	j.mu.RLock()
	defer j.mu.RUnlock()
	n := 0
	for _, f := range j.feeds {
		n += int(f.refs.Load())
	}
	return n
}

func (j *Journal) feed(id holdfast.SessionID) *feed {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.feeds[id]
}

func badAfter(after, head int64) error {
	e := holdfast.Errorf(holdfast.KindInvalid, "events", "after is %s, which is not an event number of the session's log",
		holdfast.Quote(strconv.FormatInt(after, 10)))
	if head < 0 {
		return e.WithHint("use 0 or the number of an event of the session")
	}
	return e.WithHint("the newest event of the session is #%d", head)
}

// encoder is a JSON encoder together with the buffer that it writes to.
type encoder struct {
	*json.Encoder
	buf bytes.Buffer
}

// encoders keeps encoders between calls of marshal.
var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.Encoder = json.NewEncoder(&e.buf)
	e.SetEscapeHTML(false)
	return e
}}

// largestKept is the size in bytes up to which the buffer of an encoder is kept for reuse.
const largestKept = 64 << 10

// marshal encodes a payload as one line of JSON, without HTML escaping: model text is full of angle
// brackets, and each would cost six bytes.
func marshal(v any) ([]byte, error) {
	if v == nil {
		return []byte("{}"), nil
	}
	e := encoders.Get().(*encoder)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	out := bytes.Clone(bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")))
	if e.buf.Reset(); e.buf.Cap() <= largestKept {
		encoders.Put(e)
	}
	return out, nil
}
