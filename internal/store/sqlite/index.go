package sqlite

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const (
	// indexDelay lets entries gather before they are indexed together.
	indexDelay = 100 * time.Millisecond
	// indexRest is how many times as long as it worked the follower rests: it
	// takes no more than a tenth of one CPU and of the writer (ADR 0013).
	indexRest = 9
	// indexDocs and indexBytes bound what one transaction adds to the index, and
	// so how long commits wait for it; indexText what is indexed of one text.
	indexDocs, indexBytes, indexText = 64, 64 << 10, 32 << 10
	// indexRows is how many sessions one transaction moves forward.
	indexRows = 128
)

// indexer knows which sessions have entries that are not searchable yet.
type indexer struct {
	mu sync.Mutex
	// dirty wait; busy are with the follower.
	dirty, busy map[holdfast.SessionID]bool
	// waiters are closed when nothing waits any more.
	waiters []chan struct{}
	wake    chan struct{} // capacity 1: there is something to do
	hurry   chan struct{} // capacity 1: somebody waits for it
}

func newIndexer() *indexer {
	return &indexer{
		// Something is under way until it is known what a former server left.
		dirty: map[holdfast.SessionID]bool{}, busy: map[holdfast.SessionID]bool{"": true},
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
}

// touch notes sessions whose log has grown.
func (x *indexer) touch(ids ...holdfast.SessionID) {
	if len(ids) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		x.dirty[id] = true
	}
	poke(x.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take gives the follower some sessions, none when nothing is left to do.
func (x *indexer) take() []holdfast.SessionID {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.dirty {
		if len(x.busy) == indexRows {
			break
		}
		x.busy[id] = true
		delete(x.dirty, id)
	}
	return slices.Collect(maps.Keys(x.busy))
}

// done ends what take gave; again has to be looked at once more.
func (x *indexer) done(again ...holdfast.SessionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.busy)
	for _, id := range again {
		x.dirty[id] = true
	}
	if len(x.dirty) > 0 {
		poke(x.wake)
		return
	}
	x.release()
}

func (x *indexer) release() {
	for _, w := range x.waiters {
		close(w)
	}
	x.waiters = nil
}

func (x *indexer) pending() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.dirty) + len(x.busy)
}

// settled waits until what was written before is searchable, within patience.
func (x *indexer) settled(ctx context.Context, patience time.Duration) {
	x.mu.Lock()
	if len(x.dirty)+len(x.busy) == 0 {
		x.mu.Unlock()
		return
	}
	w := make(chan struct{})
	x.waiters = append(x.waiters, w)
	poke(x.hurry)
	x.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-w:
	case <-late.C:
	case <-ctx.Done():
	}
}

// hurried reports whether somebody waits.
func (x *indexer) hurried() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.waiters) > 0
}

// follow is the follower goroutine: it brings what was committed into the search
// index, behind the commits, and begins with what a former server left.
func (s *Store) follow(ctx context.Context) {
	if err := s.unindexed(ctx); err != nil && !s.janitor.stopping() {
		s.cfg.Warn(err)
	}
	s.index.done()
	for s.pause(s.cfg.gather, s.index.wake) {
		began := time.Now()
		again, err := s.indexSome(ctx, s.index.take())
		if err != nil && s.Healthy() == nil && !s.janitor.stopping() {
			s.cfg.Warn(err)
		}
		s.index.done(again...)
		if !s.pause(indexRest*time.Since(began), nil) {
			break
		}
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.release()
}

// pause waits for a nudge, where there is one, and then for a while; somebody who
// waits for the index cuts the while short. False: the store closes.
func (s *Store) pause(while time.Duration, nudge chan struct{}) bool {
	if nudge != nil {
		select {
		case <-s.janitor.stop:
			return false
		case <-nudge:
		}
	}
	if s.index.hurried() {
		return !s.janitor.stopping()
	}
	t := time.NewTimer(while)
	defer t.Stop()
	select {
	case <-s.janitor.stop:
		return false
	case <-s.index.hurry:
	case <-t.C:
	}
	return true
}

// unindexed looks for the sessions that a former server had not indexed yet.
func (s *Store) unindexed(ctx context.Context) error {
	for last := int64(0); !s.janitor.stopping(); {
		rows, err := s.r.behind.QueryContext(ctx, last, 1000)
		if err != nil {
			return failure("store.index", err)
		}
		n := 0
		var ids []holdfast.SessionID
		for ; rows.Next(); n++ {
			var id holdfast.SessionID
			var seen int64
			var head sql.NullInt64
			if err := rows.Scan(&last, &id, &seen, &head); err != nil {
				_ = rows.Close()
				return failure("store.index", err)
			}
			if head.Int64&journal.MaxSeq > seen {
				ids = append(ids, id)
			}
		}
		if err := rows.Close(); err != nil {
			return failure("store.index", err)
		}
		s.index.touch(ids...)
		if n == 0 {
			break
		}
	}
	return nil
}

// doc is one text on its way into the index.
type doc struct {
	id   int64
	text string
}

// docs are what one session adds.
type docs struct {
	session      holdfast.SessionID
	number, seen int64
	docs         []doc
}

// indexSome indexes sessions and returns those with more to index. What fails is
// left for the next commit of that session, or the next start.
func (s *Store) indexSome(ctx context.Context, ids []holdfast.SessionID) (again []holdfast.SessionID, err error) {
	var batch []docs
	count, size := 0, 0
	for i, id := range ids {
		if count >= indexDocs || size >= indexBytes {
			again = append(again, ids[i:]...)
			break
		}
		d, more, err := s.newDocs(ctx, id, indexDocs-count, indexBytes-size)
		if holdfast.IsKind(err, holdfast.KindNotFound) {
			continue
		}
		if err != nil {
			return again, err
		}
		if more {
			again = append(again, id)
		}
		for _, one := range d.docs {
			count, size = count+1, size+len(one.text)
		}
		batch = append(batch, d)
	}
	if len(batch) == 0 {
		return again, nil
	}
	return again, s.addDocs(ctx, batch, size)
}

// addDocs writes what was read, in one transaction.
func (s *Store) addDocs(ctx context.Context, batch []docs, size int) error {
	return s.do(ctx, "store.index", &op{
		plan: func(t *tx) error {
			// A session that was deleted meanwhile leaves no word behind.
			live := batch[:0]
			for _, d := range batch {
				row, err := t.load(d.session)
				if err != nil {
					return err
				}
				if row != nil && row.Number == d.number {
					live = append(live, d)
				}
			}
			batch = live
			return nil
		},
		apply:  func(t *tx) error { return t.addDocs(batch) },
		weight: size,
	})
}

// newDocs reads what of a session is not indexed yet, within limits.
func (s *Store) newDocs(ctx context.Context, id holdfast.SessionID, count, size int) (d docs, more bool, err error) {
	d.session = id
	if d.number, err = s.number(ctx, id); err != nil {
		return d, false, err
	}
	if ok, err := found(s.r.seen.QueryRowContext(ctx, d.number).Scan(&d.seen)); !ok && err != nil {
		return d, false, failure("store.index", err)
	}
	events, err := s.Events(ctx, id, d.seen, 1000)
	if err != nil {
		return d, false, err
	}
	for _, e := range events {
		if len(d.docs) >= count || size <= 0 {
			return d, true, nil
		}
		one := doc{id: d.number<<32 | e.Seq}
		var title bool
		if one.text, title, err = words(e); err != nil {
			one.text, title = "", false // it does not decode: nothing to find
		}
		if title {
			one.id = d.number << 32
		}
		if one.text != "" || title {
			d.docs = append(d.docs, one)
			size -= len(one.text)
		}
		d.seen = e.Seq
	}
	return d, len(events) > 0, nil
}

// words is what of an event can be searched for; title: it is the session's.
func words(e holdfast.Event) (text string, title bool, err error) {
	switch e.Type {
	case holdfast.EventDamaged:
		return "", false, nil
	case holdfast.EventSessionCreated:
		var d holdfast.SessionCreated
		err = e.Decode(&d)
		return d.Title, d.Title != "", err
	case holdfast.EventSessionUpdated:
		var d holdfast.SessionUpdated
		err = e.Decode(&d)
		return deref(d.Title), d.Title != nil, err
	}
	entry, err := conversation.Entry(e)
	if entry.Role == "" {
		return "", false, err
	}
	text = entry.Text
	if entry.Tool != "" {
		text = entry.Tool + " " + string(entry.Input)
	}
	if len(text) > indexText {
		text = strings.ToValidUTF8(text[:indexText], "")
	}
	return text, false, err
}

// addDocs writes documents and how far each session was read.
func (t *tx) addDocs(batch []docs) error {
	for _, d := range batch {
		for _, one := range d.docs {
			t.pages += 1 + len(one.text)/pageSize
			if one.id&journal.MaxSeq == 0 {
				// The title before it is not its title any more.
				if _, err := t.s.w.search.delete.ExecContext(t.ctx, one.id); err != nil {
					return err
				}
			}
			if one.text == "" {
				continue
			}
			if _, err := t.s.w.search.put.ExecContext(t.ctx, one.id, one.text); err != nil {
				return err
			}
		}
		if _, err := t.s.w.search.seen.ExecContext(t.ctx, d.number, d.seen); err != nil {
			return err
		}
	}
	t.pages += 8
	return nil
}
