package search

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oneLog is the log of one session, number 1, which may be deleted.
type oneLog struct {
	events  []holdfast.Event
	deleted bool
}

func (l *oneLog) Number(context.Context, holdfast.SessionID) (int64, error) { return 1, nil }

func (l *oneLog) Events(_ context.Context, _ holdfast.SessionID, after int64, _ int) ([]holdfast.Event, error) {
	return l.events[min(after, int64(len(l.events))):], nil
}

func (l *oneLog) Holds(*db.Tx, holdfast.SessionID, int64) (bool, error) { return !l.deleted, nil }

func (l *oneLog) Intact(int64, int64, *holdfast.Event, int64) bool { return true }

// openIndex opens a database with nothing but an index, which only indexes when it is told.
func openIndex(tb testing.TB, log Log) *Index {
	tb.Helper()
	var x *Index
	d, err := db.Open(tb.Context(), db.Config{
		Path: filepath.Join(tb.TempDir(), "holdfast.db"), Schema: schema.Of, Warn: func(err error) { tb.Error(err) },
	}, func(s *db.Setup) error {
		x = New(s, Config{Log: log, Gather: time.Hour})
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return x
}

func (x *Index) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := x.db.Reads().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDeletedWordsLeaveTheIndex: no text of a session enters the index after the session was
// deleted, also when the follower had read it before.
func TestDeletedWordsLeaveTheIndex(t *testing.T) {
	log := &oneLog{}
	for i := range 20 {
		log.events = append(log.events, holdfast.Event{
			Seq: int64(i + 1), Type: holdfast.EventMessageUser, Data: json.RawMessage(`{"parts":[{"type":"text","text":"purgeable words"}]}`),
		})
	}
	x := openIndex(t, log)
	early, _, err := x.newDocs(t.Context(), "session", 10, 1000)
	if err != nil || len(early.docs) != 10 {
		t.Fatal(early, err)
	}
	if err := x.addDocs(t.Context(), []docs{early}, 0); err != nil {
		t.Fatal(err)
	}
	if n := x.count(t, "search"); n != 10 {
		t.Fatalf("%d texts were indexed", n)
	}
	late, _, err := x.newDocs(t.Context(), "session", 10, 1000)
	if err != nil || len(late.docs) != 10 || late.docs[0].id != 1<<32|11 {
		t.Fatal(late, err)
	}
	log.deleted = true
	err = x.db.Do(t.Context(), "test", &db.Op{Apply: func(tx *db.Tx) error {
		if err := x.Forget(tx, 1); err != nil {
			return err
		}
		left, err := x.Purge(tx, 1)
		if err == nil && !left {
			t.Error("nothing was purged")
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.addDocs(t.Context(), []docs{late}, 0); err != nil {
		t.Fatal(err)
	}
	if n, m := x.count(t, "search"), x.count(t, "search_seen"); n != 0 || m != 0 {
		t.Errorf("%d texts and %d positions are left", n, m)
	}
}

// someLogs are logs of which that of the session "bad" cannot be read.
type someLogs struct{ oneLog }

func (l *someLogs) Number(_ context.Context, id holdfast.SessionID) (int64, error) {
	return map[holdfast.SessionID]int64{"one": 1, "bad": 2, "two": 3}[id], nil
}

func (l *someLogs) Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error) {
	if id == "bad" {
		return nil, holdfast.Errorf(holdfast.KindInternal, "test", "unreadable")
	}
	return l.oneLog.Events(ctx, id, after, limit)
}

// TestOneUnreadableLog: the other sessions of its batch are indexed, and the error names its session.
func TestOneUnreadableLog(t *testing.T) {
	x := openIndex(t, &someLogs{oneLog{events: []holdfast.Event{{
		Seq: 1, Type: holdfast.EventMessageUser, Data: json.RawMessage(`{"parts":[{"type":"text","text":"words"}]}`),
	}}}})
	again, err := x.indexSome(t.Context(), []holdfast.SessionID{"one", "bad", "two"})
	if !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), "session bad") {
		t.Errorf("%v", err)
	}
	if n, m := x.count(t, "search"), x.count(t, "search_seen"); n != 2 || m != 2 {
		t.Errorf("%d texts and %d positions, want those of two sessions; again %q", n, m, again)
	}
}

// TestMatchIsNeverASyntaxError: whatever a person types is a query that FTS5 understands, or is
// refused before it gets there.
func TestMatchIsNeverASyntaxError(t *testing.T) {
	x := openIndex(t, &oneLog{})
	for _, words := range []string{`plain`, `"a phrase`, `beg*`, `NOT AND OR`, `a"b"c`, `col:umn`, `^x`, `(x`, `x)`, `-x`, `*`, `"`, ``} {
		match, err := Match(words)
		if err != nil {
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Errorf("%q: %v", words, err)
			}
			continue
		}
		if _, err := x.Search(t.Context(), journal.Search{Text: words}); err != nil {
			t.Errorf("%q became %q: %v", words, match, err)
		}
	}
}

// BenchmarkIndex measures the time of the writer for each text that becomes searchable. At
// 10,000 appends a second it is too long for their own transactions, so the index follows
// behind (ADR 0013).
func BenchmarkIndex(b *testing.B) {
	x := openIndex(b, &oneLog{})
	text := strings.Repeat("please write the file and run the command ", 5)
	n := 0
	for b.Loop() {
		d := docs{number: 1 << 20}
		for range indexDocs {
			n++
			d.docs = append(d.docs, doc{id: 1<<52 | int64(n), text: text + fmt.Sprint(n)})
		}
		if err := x.addDocs(b.Context(), []docs{d}, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/text")
}
