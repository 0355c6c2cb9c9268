package search

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const (
	// indexDelay is the default time for which entries gather before they are indexed together.
	indexDelay = 100 * time.Millisecond
	// indexRest: after each batch the follower rests this many times as long as the batch took, unless a caller
	// waits in Settle. So it uses at most a tenth of one CPU and of the writer (ADR 0013).
	indexRest = 9
	// indexDocs and indexBytes are about the most texts and bytes that one transaction adds to the index: commits
	// have to wait for that transaction. Of a text only the first indexText bytes are indexed.
	indexDocs, indexBytes, indexText = 64, 64 << 10, 32 << 10
	// eventsPerDoc is about how many events are read for one text: a turn with a tool call has nine
	// events and four texts.
	eventsPerDoc = 4
	// indexRows is the most sessions that one batch of the follower indexes.
	indexRows = 128
)

// Log gives Index access to the logs of the sessions.
type Log interface {
	// Number returns the number of a session, the upper half of the keys of its events;
	// not_found for an unknown session.
	Number(ctx context.Context, id holdfast.SessionID) (int64, error)
	// Events returns up to limit events after a sequence number, in order.
	Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error)
	// Holds reports whether the session id exists with this number, read in the transaction t.
	Holds(t *db.Tx, id holdfast.SessionID, number int64) (bool, error)
	// Intact reports whether the row of an event is undamaged: whether its key, its time in
	// milliseconds and the event match the checksum.
	Intact(key, at int64, e *holdfast.Event, sum int64) bool
}

// Config configures an Index. Zero values of Gather and Warn take the defaults.
type Config struct {
	Log Log
	// Gather is how long entries gather before they are indexed together (default 100 ms).
	Gather time.Duration
	// Warn is called with errors of the follower (default: not called).
	Warn func(error)
}

// Index is the search index. Safe for concurrent use.
type Index struct {
	db     *db.DB
	log    Log
	gather time.Duration
	warn   func(error)
	todo   *unindexed

	put, remove, seen, forget *sql.Stmt
	purge, merge, changes     *sql.Stmt

	find, upto, behind *sql.Stmt
}

// New adds the index to a database. Its follower goroutine starts once the database is open.
func New(s *db.Setup, cfg Config) *Index {
	x := &Index{db: s.DB(), log: cfg.Log, gather: cfg.Gather, warn: cfg.Warn, todo: newUnindexed()}
	if x.gather <= 0 {
		x.gather = indexDelay
	}
	if x.warn == nil {
		x.warn = func(error) {}
	}
	s.Write(&x.put, `INSERT INTO search (rowid, text) VALUES (?,?)`)
	s.Write(&x.remove, `DELETE FROM search WHERE rowid = ?`)
	s.Write(&x.seen, `INSERT INTO search_seen (session, seq) VALUES (?,?)
		ON CONFLICT (session) DO UPDATE SET seq = excluded.seq`)
	s.Write(&x.forget, `DELETE FROM search_seen WHERE session = ?`)
	s.Write(&x.purge, `DELETE FROM search WHERE rowid IN
		(SELECT rowid FROM search WHERE rowid BETWEEN ? AND ? LIMIT ?)`)
	s.Write(&x.merge, `INSERT INTO search (search, rank) VALUES ('merge', ?)`)
	s.Write(&x.changes, `SELECT total_changes()`)
	s.Read(&x.find, `SELECT search.rowid, s.id, s.title, s.created_at, e.type, e.turn, e.at, e.data, e.sum, e.agent
		FROM search
		CROSS JOIN sessions s ON s.number = search.rowid >> 32 LEFT JOIN events e ON e.id = search.rowid
		WHERE search MATCH ? AND search.rowid >= ? AND search.rowid < ? AND (s.purge_at IS NULL OR ?) ORDER BY search.rowid DESC LIMIT ?`)
	s.Read(&x.upto, `SELECT seq FROM search_seen WHERE session = ?`)
	s.Read(&x.behind, `SELECT number, id, coalesce((SELECT seq FROM search_seen WHERE session = sessions.number), 0),
		(SELECT max(id) FROM events WHERE id BETWEEN sessions.number << 32 AND sessions.number << 32 | 4294967295)
		FROM sessions WHERE number > ? ORDER BY number LIMIT ?`)
	s.Run(x.follow)
	s.Recovered(x.recovered)
	return x
}

// Touch marks sessions whose log has grown, so that the follower indexes their new entries.
func (x *Index) Touch(ids ...holdfast.SessionID) { x.todo.touch(ids...) }

// Pending returns the number of sessions with entries that are not searchable yet.
func (x *Index) Pending() int { return x.todo.count() }

// Settle waits until all entries committed before the call are searchable, at most for patience or until ctx
// ends.
func (x *Index) Settle(ctx context.Context, patience time.Duration) { x.todo.settle(ctx, patience) }

// Forget deletes the row that records how far the log of a session was indexed. It belongs to
// the transaction that deletes the session; the texts are removed by Purge.
func (x *Index) Forget(t *db.Tx, number int64) error {
	_, err := x.forget.ExecContext(t.Ctx, number)
	return err
}

// Purge removes some texts of a deleted session from the index. It returns false when it found
// none to remove.
func (x *Index) Purge(t *db.Tx, number int64) (bool, error) {
	n, err := db.Affected(x.purge.ExecContext(t.Ctx, number<<32, number<<32|journal.MaxSeq, indexDocs))
	return n > 0, err
}

// Merge rewrites the index without the words of removed texts, in small transactions.
func (x *Index) Merge(ctx context.Context) error {
	for pages := -db.WipePages; !x.db.Stops(); pages = db.WipePages {
		var before, after int64
		err := x.db.Do(ctx, "store.purge", &db.Op{Apply: func(t *db.Tx) error {
			t.Pages += db.WipePages
			if err := x.changes.QueryRowContext(t.Ctx).Scan(&before); err != nil {
				return err
			}
			if _, err := x.merge.ExecContext(t.Ctx, pages); err != nil {
				return err
			}
			return x.changes.QueryRowContext(t.Ctx).Scan(&after)
		}})
		if err != nil {
			return err
		}
		if after-before < 2 {
			break
		}
	}
	return nil
}

// follow is the follower goroutine: it indexes entries after they were committed, first those that
// an earlier server left unindexed.
func (x *Index) follow(ctx context.Context) {
	defer x.todo.close()
	x.recovered(ctx)
	x.todo.done()
	for x.pause(x.gather, x.todo.wake) {
		began := time.Now()
		again, err := x.indexSome(ctx, x.todo.take())
		if err != nil && x.db.Healthy() == nil && !x.db.Stops() {
			x.warn(err)
		}
		x.todo.done(again...)
		if !x.pause(indexRest*time.Since(began), nil) {
			return
		}
	}
}

// pause waits for a signal on nudge, unless nudge is nil, and then for the duration while. It ends the second
// wait early if a caller waits in Settle. It returns false when the database closes.
func (x *Index) pause(while time.Duration, nudge chan struct{}) bool {
	if nudge != nil {
		select {
		case <-x.db.Stopping():
			return false
		case <-nudge:
		}
	}
	if x.todo.hurried() {
		return !x.db.Stops()
	}
	t := time.NewTimer(while)
	defer t.Stop()
	select {
	case <-x.db.Stopping():
		return false
	case <-x.todo.hurry:
	case <-t.C:
	}
	return true
}

// recovered marks the sessions with unindexed entries, which an earlier server left or which were written
// while the disk was full. If it fails it warns.
func (x *Index) recovered(ctx context.Context) {
	if err := x.lookBehind(ctx); err != nil && !x.db.Stops() {
		x.warn(err)
	}
}

// lookBehind marks all sessions whose log has entries after the last one that was indexed.
func (x *Index) lookBehind(ctx context.Context) error {
	for last := int64(0); !x.db.Stops(); {
		n := 0
		var ids []holdfast.SessionID
		rows, err := x.behind.QueryContext(ctx, last, 1000)
		err = db.Each(rows, err, func(sc db.Scanner) error {
			n++
			var id holdfast.SessionID
			var seen int64
			var head sql.NullInt64
			err := sc.Scan(&last, &id, &seen, &head)
			if head.Int64&journal.MaxSeq > seen {
				ids = append(ids, id)
			}
			return err
		})
		x.todo.touch(ids...)
		if err != nil {
			return db.Failure("store.index", err)
		}
		if n == 0 {
			break
		}
	}
	return nil
}

// doc is one text to be added to the index, with its row id.
type doc struct {
	id   int64
	text string
}

// docs are the new texts of one session. number is the session's number, seen the sequence number up to which
// its log was read.
type docs struct {
	session      holdfast.SessionID
	number, seen int64
	docs         []doc
}

// indexSome indexes new entries of the sessions, up to the limits of one batch, and returns the sessions that have more.
// A session whose log cannot be read is left out of the batch and named in the error. After an error a session is tried
// again at its next commit or at the next start.
func (x *Index) indexSome(ctx context.Context, ids []holdfast.SessionID) (again []holdfast.SessionID, err error) {
	var batch []docs
	var errs []error
	count, size := 0, 0
	for i, id := range ids {
		if count >= indexDocs || size >= indexBytes {
			again = append(again, ids[i:]...)
			break
		}
		d, more, err := x.newDocs(ctx, id, indexDocs-count, indexBytes-size)
		if holdfast.IsKind(err, holdfast.KindNotFound) {
			continue
		}
		if err != nil {
			errs = append(errs, holdfast.Errorf(holdfast.KindOf(err), "store.index", "the new entries of session %s were not added to the search index: %w", id, err))
			continue
		}
		if more {
			again = append(again, id)
		}
		for _, one := range d.docs {
			count, size = count+1, size+len(one.text)
		}
		batch = append(batch, d)
	}
	if len(batch) > 0 {
		errs = append(errs, x.addDocs(ctx, batch, size))
	}
	return again, errors.Join(errs...)
}

// addDocs writes the texts of a batch into the index, in one transaction.
func (x *Index) addDocs(ctx context.Context, batch []docs, size int) error {
	return x.db.Do(ctx, "store.index", &db.Op{
		Plan: func(t *db.Tx) error {
			// Leave out sessions that were deleted meanwhile: their words must not be indexed.
			live := batch[:0]
			for _, d := range batch {
				there, err := x.log.Holds(t, d.session, d.number)
				if err != nil {
					return err
				}
				if there {
					live = append(live, d)
				}
			}
			batch = live
			return nil
		},
		Apply:  func(t *db.Tx) error { return x.write(t, batch) },
		Weight: size,
	})
}

// newDocs reads the unindexed texts of a session, at most about count texts and size bytes. more
// is true if the log may have more of them.
func (x *Index) newDocs(ctx context.Context, id holdfast.SessionID, count, size int) (d docs, more bool, err error) {
	d.session = id
	if d.number, err = x.log.Number(ctx, id); err != nil {
		return d, false, err
	}
	if ok, err := db.Found(x.upto.QueryRowContext(ctx, d.number).Scan(&d.seen)); !ok && err != nil {
		return d, false, db.Failure("store.index", err)
	}
	events, err := x.log.Events(ctx, id, d.seen, min(eventsPerDoc*count, 1000))
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
			one.text, title = "", false // an event that does not decode has no text to find
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

// words returns the searchable text of an event, empty if it has none. title is true if the text
// is the session's title.
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
	return clip.Head(text, indexText), false, err
}

// write inserts the texts of a batch, and records for each session how far its log was read.
func (x *Index) write(t *db.Tx, batch []docs) error {
	for _, d := range batch {
		for _, one := range d.docs {
			t.Pages += 1 + len(one.text)/db.PageSize
			if one.id&journal.MaxSeq == 0 { // this text is a title, which replaces the former title of the session
				if _, err := x.remove.ExecContext(t.Ctx, one.id); err != nil {
					return err
				}
			}
			if one.text == "" {
				continue
			}
			if _, err := x.put.ExecContext(t.Ctx, one.id, one.text); err != nil {
				return err
			}
		}
		if _, err := x.seen.ExecContext(t.Ctx, d.number, d.seen); err != nil {
			return err
		}
	}
	t.Pages += 8
	return nil
}
