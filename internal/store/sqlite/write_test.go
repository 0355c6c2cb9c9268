package sqlite

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

func openNew(t testing.TB, cfg Config) *opened {
	t.Helper()
	cfg.Path = filepath.Join(t.TempDir(), "holdfast.db")
	// The writer's work is observed here: the index follows late.
	cfg.gather = time.Hour
	return openAt(t, cfg)
}

func commit(t testing.TB, s *opened, e journal.Encoded) journal.Committed {
	t.Helper()
	done, err := s.Commit(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// occupy keeps the writer busy with a transaction of nothing until the returned
// function is called.
func occupy(t *testing.T, s *opened) (release func()) {
	t.Helper()
	started, stop, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		ended <- s.all.db.Do(context.WithoutCancel(t.Context()), "occupy", &db.Op{Plan: func(*db.Tx) error {
			close(started)
			<-stop
			return errNothing
		}})
	}()
	<-started
	release = func() {
		once.Do(func() {
			close(stop)
			if err := <-ended; err != error(errNothing) {
				t.Errorf("occupy: %v", err)
			}
		})
	}
	t.Cleanup(release)
	return release
}

// together has the writer take changes in one batch and returns their answers.
func together(t *testing.T, s *opened, changes ...journal.Encoded) []error {
	t.Helper()
	errs := make([]error, len(changes))
	var wg sync.WaitGroup
	release := occupy(t, s)
	for i, c := range changes {
		ctx := &waiting{Context: t.Context(), queued: make(chan struct{})}
		wg.Go(func() { _, errs[i] = s.Commit(ctx, c) })
		<-ctx.queued
	}
	release()
	wg.Wait()
	return errs
}

// waiting is a context that tells when somebody waits for its end: a commit does so once it
// is queued.
type waiting struct {
	context.Context
	once   sync.Once
	queued chan struct{}
}

func (w *waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.queued) })
	return w.Context.Done()
}

// TestAFailingChangeDoesNotFailItsBatch: when the database refuses a statement,
// the batch is undone and tried one by one.
func TestAFailingChangeDoesNotFailItsBatch(t *testing.T) {
	s := openNew(t, Config{})
	if _, err := plain(t, s.path).ExecContext(t.Context(), `CREATE TRIGGER poison BEFORE INSERT ON events
		WHEN NEW.type = 'poison' BEGIN SELECT RAISE(ABORT, 'poisoned'); END`); err != nil {
		t.Fatal(err)
	}
	commit(t, s, creation(testID(1)))
	commit(t, s, creation(testID(2)))
	poison := appending(testID(2), payload, 1)
	poison.Events[0].Type = "poison"
	title := "never"
	poison.Set = &journal.RowPatch{Title: &title}
	stale := appending(testID(1), payload, 1)
	stale.Revision = 7
	good := appending(testID(1), payload, 2)
	errs := together(t, s, good, good, poison, good, stale, appending(testID(2), payload, 1), good)
	for i, err := range errs {
		switch i {
		case 2:
			if !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), "poisoned") {
				t.Errorf("poison: %v", err)
			}
		case 4:
			if !holdfast.IsKind(err, holdfast.KindConflict) {
				t.Errorf("stale: %v", err)
			}
		default:
			if err != nil {
				t.Errorf("change %d: %v", i, err)
			}
		}
	}
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
	for id, want := range map[holdfast.SessionID]int64{testID(1): 9, testID(2): 2} {
		// The writer's memory and the disk agree.
		if done := commit(t, s, appending(id, payload, 1)); done.Row.LastSeq != want+1 || done.Row.Title != "a title" {
			t.Errorf("%s: #%d %q, want #%d", id, done.Row.LastSeq, done.Row.Title, want+1)
		}
	}
	checkLogs(t, s, nil)
}

// TestAForeignWriterCannotBreakTheNumbers: another program that writes without
// raising the epoch makes the writer look again.
func TestAForeignWriterCannotBreakTheNumbers(t *testing.T) {
	s := openNew(t, Config{})
	n := commit(t, s, creation(testID(1))).Row.Number
	commit(t, s, appending(testID(1), payload, 3))
	commit(t, s, creation(testID(2)))
	db := plain(t, s.path)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO events (id, type, turn, at, data) VALUES (?, 'x', '', 0, '{}')`, n<<32|5); err == nil {
		t.Fatal("a STRICT table took text as data")
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO events (id, type, turn, at, data) VALUES (?, 'x', '', 0, ?)`, n<<32|5, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE sessions SET title = 'theirs', revision = 9`); err != nil {
		t.Fatal(err)
	}
	done := commit(t, s, appending(testID(1), payload, 1))
	if done.Events[0].Seq != 6 || done.Row.Title != "theirs" || done.Row.Revision != 9 {
		t.Fatalf("committed #%d on %+v", done.Events[0].Seq, done.Row)
	}
	for i := 1; i <= 2; i++ {
		if row, err := s.Row(t.Context(), testID(i)); err != nil || row.Title != "theirs" {
			t.Errorf("readers see %q, %v", row.Title, err)
		}
	}
}

// TestTheCacheMayForget works on more sessions than the writer remembers, in
// batches, so that it must look up what the same batch has not inserted yet.
func TestTheCacheMayForget(t *testing.T) {
	s := openNew(t, Config{})
	const n = cacheMax + 200
	fill(t, s, n)
	if s.Sessions.rows.cache.order.Len() != cacheMax || len(s.Sessions.rows.cache.rows) != cacheMax {
		t.Fatalf("%d, %d rows are remembered", s.Sessions.rows.cache.order.Len(), len(s.Sessions.rows.cache.rows))
	}
	// In one batch: touch a session, push it out with the others, touch it again.
	err := s.all.db.Do(t.Context(), "test", &db.Op{
		Apply: func(x *db.Tx) error {
			for i := 1; i <= n; i++ {
				for _, id := range []int{i, 1} {
					c := &change{s: s.Sessions, in: appending(testID(id), payload, 1)}
					c.in.Token = journal.Token(s.Epoch())
					if err := c.plan(x); err != nil {
						return err
					}
					if err := c.apply(x); err != nil {
						return err
					}
					if id == 1 && i%500 == 0 {
						for j := 1; j <= n; j++ {
							s.Sessions.rows.cache.drop(testID(j))
						}
					}
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]int64{1: n + 2, 2: 2, n: 2} {
		head, err := s.Head(t.Context(), testID(i))
		if err != nil || head != want {
			t.Errorf("session %d: head %d, %v, want %d", i, head, err, want)
		}
	}
}

func TestCloseAnswersEverybody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	commit(t, s, creation(testID(1)))
	var wg sync.WaitGroup
	var done, refused atomic.Int64
	for range 50 {
		wg.Go(func() {
			for {
				_, err := s.Commit(t.Context(), appending(testID(1), payload, 1))
				if err == nil {
					done.Add(1)
					continue
				}
				if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "closed") {
					t.Error(err)
				}
				refused.Add(1)
				return
			}
		})
	}
	eventually(t, "some are written", func() bool { return done.Load() > 100 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if refused.Load() != 50 {
		t.Errorf("%d were refused", refused.Load())
	}
	s = openAt(t, Config{Path: path})
	if head, err := s.Head(t.Context(), testID(1)); err != nil || head != done.Load()+1 {
		t.Errorf("head %d, %v; %d were acknowledged", head, err, done.Load())
	}
}

func TestTheClockStampsEventsAndTurns(t *testing.T) {
	at := time.Date(2026, 11, 21, 4, 5, 6, 789_999_999, time.FixedZone("", 7200))
	s := openNew(t, Config{Clock: func() time.Time { return at }})
	c := creation(testID(1))
	c.Turns = []journal.TurnChange{{ID: "t", To: holdfast.TurnRunning, Number: 1}}
	done := commit(t, s, c)
	want := time.Date(2026, 11, 21, 2, 5, 6, 789_000_000, time.UTC)
	turn, err := s.Turn(t.Context(), testID(1), "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []time.Time{
		done.Row.CreatedAt, done.Row.LastActiveAt, done.Events[0].Time, turn.CreatedAt, *turn.StartedAt,
	} {
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func (s *opened) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := s.all.db.Reads().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDeletedLogsGoInTheBackground(t *testing.T) {
	s := openNew(t, Config{})
	for i := range 3 {
		c := creation(testID(i))
		c.Create.Status = holdfast.StatusEnded
		commit(t, s, c)
		for range 5 {
			commit(t, s, appending(testID(i), []byte("1"), 1000))
		}
	}
	for i := range 2 {
		if err := s.DeleteSession(t.Context(), testID(i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the events are gone", func() bool {
		return s.count(t, "events") == 5001 && s.count(t, "purge") == 0
	})
	checkLogs(t, s, nil)
	if head, err := s.Head(t.Context(), testID(2)); err != nil || head != 5001 {
		t.Errorf("the other log ends at #%d, %v", head, err)
	}
}

func TestADeletionThatACrashCutOffGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	n := commit(t, s, creation(testID(1))).Row.Number
	commit(t, s, appending(testID(1), []byte("1"), 3000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := plain(t, path)
	for _, q := range []string{`DELETE FROM sessions WHERE number = ?`, `INSERT INTO purge VALUES (?)`} {
		if _, err := db.ExecContext(t.Context(), q, n); err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	s = openAt(t, Config{Path: path})
	eventually(t, "the events are gone", func() bool { return s.count(t, "events") == 0 && s.count(t, "purge") == 0 })
}

func TestBackgroundFailuresAreTold(t *testing.T) {
	told := make(chan error, 10)
	s := openNew(t, Config{Warn: func(err error) { told <- err }})
	c := creation(testID(1))
	c.Create.Status = holdfast.StatusEnded
	commit(t, s, c)
	if _, err := plain(t, s.path).ExecContext(t.Context(), `CREATE TRIGGER keep BEFORE DELETE ON events
		BEGIN SELECT RAISE(ABORT, 'kept'); END`); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSession(t.Context(), testID(1)); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !strings.Contains(err.Error(), "kept") {
		t.Error(err)
	}
	// The session is gone all the same, and the store goes on.
	if _, err := s.Row(t.Context(), testID(1)); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
	commit(t, s, creation(testID(2)))
}

func FuzzCursor(f *testing.F) {
	f.Add("czE")
	f.Add(db.EncodeCursor('s', 1<<60))
	f.Add("s1\x00")
	f.Fuzz(func(t *testing.T, c string) {
		n, err := db.DecodeCursor('s', c)
		if err != nil {
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Fatal(err)
			}
			return
		}
		if n <= 0 || db.EncodeCursor('s', n) != c {
			t.Fatalf("%q is %d, whose cursor is %q", c, n, db.EncodeCursor('s', n))
		}
	})
}
