package journal

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// page is how many events the first reads of a log ask the store for, longPage those
// after them.
const (
	page     = 256
	longPage = 1000
	// pagesAhead is how many pages are read while the caller is at the one before.
	pagesAhead = 2
)

// Journal appends and reads the logs of all sessions. Safe for concurrent use.
// It keeps the newest events of the sessions that have
// readers or had some lately.
type Journal struct {
	store Store
	clock func() time.Time
	lim   limits
	// writers are the sessions with a change under way.
	writers writers

	mu    sync.RWMutex
	feeds map[holdfast.SessionID]*feed
	idle  *list.List // of *feed without readers, the one left last at the back
}

// Config configures a Journal. Zero values take the defaults.
type Config struct {
	Store Store
	// Clock stamps deltas (default time.Now); the store stamps events.
	Clock func() time.Time
	// Tail is how many recent events of a session with readers are kept in
	// memory (default 256); DeltaBytes caps the deltas waiting for one reader
	// (default 64 KiB), older ones being merged, then dropped. Idle is for how many
	// sessions without readers some are kept (default 64), 32 KiB each.
	Tail, DeltaBytes, Idle int
}

// New makes a journal over a store.
func New(cfg Config) *Journal {
	j := &Journal{
		store: cfg.Store,
		clock: cfg.Clock,
		lim:   limits{tail: cfg.Tail, deltaBytes: cfg.DeltaBytes, idle: cfg.Idle},
		feeds: make(map[holdfast.SessionID]*feed),
		idle:  list.New(),
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

// Commit writes a change and then gives its events to the readers. Changes of one session
// are made one after the other, in the order of the calls; those of different sessions
// share transactions.
//
// Errors are the store's; a payload that is no JSON is internal. An error of
// kind unavailable leaves open whether the change was written.
func (j *Journal) Commit(ctx context.Context, c Change) (Committed, error) {
	defer j.writers.lock(c.Session)()
	return j.commit(ctx, c)
}

// CommitAt makes a change out of the session's row and commits it. No other change of the
// session comes between, so that build may rely on the row, on its LastSeq for example. If
// build fails, or leaves the change without anything to write, nothing is written and Row
// is the row as it was. build must not commit. Errors are build's, Row's or those of Commit.
func (j *Journal) CommitAt(ctx context.Context, id holdfast.SessionID, build func(Row, *Change) error) (Committed, error) {
	defer j.writers.lock(id)()
	row, err := j.store.Row(ctx, id)
	if err != nil {
		return Committed{}, err
	}
	c := NewChange(id)
	c.LastSeq = row.LastSeq
	if err := build(row, &c); err != nil || c.Empty() {
		return Committed{Row: row}, err
	}
	return j.commit(ctx, c)
}

// commit is Commit for a caller that holds the session's lock.
func (j *Journal) commit(ctx context.Context, c Change) (Committed, error) {
	enc := Encoded{Change: c, Data: make([][]byte, len(c.Events))}
	for i, d := range c.Events {
		data, err := marshal(d.Data)
		if err != nil {
			return Committed{}, holdfast.Errorf(holdfast.KindInternal, "journal.commit",
				"payload of %s does not marshal: %w", holdfast.Quote(string(d.Type)), err)
		}
		enc.Data[i] = data
	}
	done, err := j.store.Commit(ctx, enc)
	// A reader that came while the store was writing has its feed by now: it made that
	// before it read the end of the log.
	if f := j.feed(c.Session); f != nil {
		f.append(done.Events)
	}
	return done, err
}

// writers lets one change of a session through at a time. The zero value is ready.
type writers struct {
	mu sync.Mutex
	at map[holdfast.SessionID]*writer
}

// writer is the lock of one session, with the number of those that hold it or wait for it.
type writer struct {
	sync.Mutex
	n int
}

// lock returns when no change of the session is under way. The next one waits until the
// function it returns is called.
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

// Publish fans out an unnumbered delta to the live readers of a session. It
// never blocks and costs nothing without readers. A payload that does not
// marshal is dropped: deltas are a courtesy, the log has the text.
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

// Read is Replay for callers that decide by the log: it stops with an error at a
// damaged event, because its absence must not be treated as an answer.
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

// Replay yields the log after a sequence number, in pages, to its present end. A
// damaged event is yielded as event.damaged. not_found for an unknown session, invalid
// for a negative after; an after at or beyond the end yields nothing. The sequence
// stops at the first error.
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

// recent is what the session's readers hold in memory of the events after a
// position: nothing, or all from the next one on.
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
	var out []holdfast.Event
	for fr := f.event(after); fr != nil; fr = f.event(after) {
		out = append(out, fr.Event)
		after = fr.Seq
	}
	return out
}

// readPage reads some events of (after, upto], at least one, and checks that
// they are dense: a hole is a damaged log and must not pass as a whole one.
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
			"the log of %s ends at #%d, #%d was expected", id, after, upto)
	}
	for i, e := range evs {
		if e.Seq != after+int64(i)+1 {
			return nil, holdfast.Errorf(holdfast.KindInternal, "journal.read",
				"the log of %s has #%d where #%d was expected", id, e.Seq, after+int64(i)+1)
		}
	}
	return evs, nil
}

// readAhead reads pages of a log. From the second one on it reads the next ones while the
// caller is at the one before.
type readAhead struct {
	store Store
	id    holdfast.SessionID
	head  int64
	pages int
	// coming are the pages that are being read, in the order of the log.
	coming []coming
}

// coming is a page that is being read.
type coming struct {
	after  int64
	got    chan read
	cancel context.CancelFunc
}

type read struct {
	events []holdfast.Event
	err    error
}

// page is the next page after an event, which is the last of the page before.
func (r *readAhead) page(ctx context.Context, after int64) ([]holdfast.Event, error) {
	if len(r.coming) > 0 && r.coming[0].after != after {
		r.stop() // the page before was cut short
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
	// A page that is cut short has large events, of which not many pages fit into memory.
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

// begin reads the page after an event.
func (r *readAhead) begin(ctx context.Context, after int64) {
	ctx, cancel := context.WithCancel(ctx)
	c := coming{after, make(chan read, 1), cancel}
	r.coming = append(r.coming, c)
	go func() {
		events, err := readPage(ctx, r.store, r.id, after, r.head, longPage)
		c.got <- read{events, err}
	}()
}

// stop gives up the pages that are being read.
func (r *readAhead) stop() {
	for _, c := range r.coming {
		c.cancel()
		<-c.got
	}
	r.coming = nil
}

// Readers is how many readers there are.
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
	e := holdfast.Errorf(holdfast.KindInvalid, "events", "after %s is not a position in this log",
		holdfast.Quote(strconv.FormatInt(after, 10)))
	if head < 0 {
		return e.WithHint("use 0 or the number of an event")
	}
	return e.WithHint("the newest event is #%d", head)
}

// encoder is a JSON encoder with the buffer that it writes to.
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

// largestKept bounds the buffer of an encoder that is kept, in bytes.
const largestKept = 64 << 10

// marshal renders a payload without HTML escaping: model text is full of
// angle brackets, and each would cost six bytes. The result is one line.
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
