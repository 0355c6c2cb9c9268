package snapshot_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/branch"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
	"github.com/holdfast-run/holdfast/internal/stages"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a data directory with one session in it, and the snapshots of the server that runs on it.
type world struct {
	t     testing.TB
	base  string
	store *sqlite.Store
	packs *pack.Store
	id    holdfast.SessionID
	*server
	// alive is what Boxes.Alive reports. still runs before Boxes.Still looks at the files.
	// thaw runs after that, before Boxes.Still returns. halts has, for each call of Boxes.Still, whether its caller
	// withdrew it.
	alive bool
	halts []bool
	still func()
	thaw  func() error
	// cut is when the machine last lost power.
	cut time.Time
	// crash is the point at which the server ends, countdown the number of points before it ends.
	crash     string
	countdown int
	// passed are the points in the order in which they were passed. reached is called at each; it may be nil.
	passed  []string
	reached func(point string)
	// lost is the number of a pack that the database does not find.
	lost int64
	// commits counts the commits.
	commits int
	// hooks are the webhooks that hear of completed turns.
	hooks []string
	// exclude is the servers' Exclude.
	exclude []string
	// later is how much the clock is ahead.
	later time.Duration
	// mine is the directory of the user's own that the session works in; empty for none. inode is what it was at first.
	// ignored and largest are the servers' Ignored and Largest.
	mine    string
	inode   uint64
	ignored bool
	largest snapshot.Size
}

// server is what ends with a crash: nothing of an ended server reaches the database.
type server struct {
	w        *world
	ended    atomic.Bool
	journal  *journal.Journal
	snaps    *snapshot.Snapshots
	branches *branch.Branches
}

func (s *server) alive() error {
	if s.ended.Load() {
		return holdfast.Errorf(holdfast.KindUnavailable, "test", "the server has ended")
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind holdfast.Kind) {
	t.Helper()
	if !holdfast.IsKind(err, kind) {
		t.Fatalf("%v (%s), want %s", err, holdfast.KindOf(err), kind)
	}
}

// quickDir returns a directory in memory if possible.
func quickDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "hf-snapshot")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { must(t, rooted.RemoveAll(dir)) })
	return dir
}

// newWorld makes a session; with had its first box has run, and made an empty workspace and home.
func newWorld(t testing.TB, had bool) *world {
	t.Helper()
	return worldIn(t, quickDir(t), had)
}

// worldIn is newWorld with its files in a directory.
func worldIn(t testing.TB, base string, had bool) *world {
	t.Helper()
	w := &world{t: t, base: base, countdown: -1, thaw: func() error { return nil }}
	store, err := sqlite.Open(t.Context(), sqlite.Config{
		Path: filepath.Join(w.base, "db", "holdfast.db"), Warn: func(err error) { t.Errorf("warned: %v", err) },
		Deliver: func(typ holdfast.EventType) []string {
			if typ != holdfast.EventTurnCompleted {
				return nil
			}
			return w.hooks
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	w.store = store
	if w.packs, err = pack.Open(filepath.Join(w.base, "packs"), pack.Keys{ID: [32]byte{1}}, pack.Config{Spares: 2}); err != nil {
		t.Fatal(err)
	}
	packs := w.packs
	t.Cleanup(func() { must(t, packs.Close()) })
	w.start()
	w.id = w.newSession()
	w.ready()
	if had {
		w.box()
	}
	return w
}

// box records that a box has run, and makes what it makes.
func (w *world) box() {
	w.t.Helper()
	c := journal.NewChange(w.id)
	yes := true
	c.Patch().HadFiles, c.Patch().FilesSeeded = &yes, &yes
	_, err := w.journal.Commit(w.t.Context(), c)
	must(w.t, err)
	must(w.t, os.MkdirAll(w.at("workspace"), 0o755))
	must(w.t, os.MkdirAll(w.at("home"), 0o700))
}

func (w *world) newSession() holdfast.SessionID {
	id := holdfast.SessionID(w.newID())
	c := journal.NewChange(id)
	c.Create = &journal.Row{Session: holdfast.Session{
		ID: id, Agent: "a", Status: holdfast.StatusActive, Trust: holdfast.Untrusted, Runtime: "native", Mode: holdfast.ModeDefault, Title: "one",
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated}}
	_, err := w.journal.Commit(w.t.Context(), c)
	must(w.t, err)
	return id
}

func (w *world) newID() string {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	must(w.t, err)
	return id
}

// start starts a server over the same database, packs and files.
func (w *world) start() {
	s := &server{w: w}
	sessions := gate{w.store.Sessions, s}
	s.journal = journal.New(journal.Config{Store: sessions, Leases: w.store.Leases})
	newID := func() (string, error) { return holdfast.NewUUID(time.Now(), rand.Reader) }
	collector := collect.New(collect.Config{DB: w.store.Checkpoints, Packs: w.packs, Record: coded.Recorded})
	var err error
	s.snaps, err = snapshot.New(snapshot.Config{
		Packs: w.packs, Exclude: w.exclude, Ignored: w.ignored, Largest: w.largest, Store: points{w.store.Checkpoints, s}, Sessions: sessions, Boxes: boxes{w}, Journal: s.journal,
		Branch: func(ctx context.Context, id holdfast.SessionID, seq int64) ([]journal.Span, error) {
			spans, _, err := branch.Spans(ctx, people{s}, id, seq)
			return spans, err
		},
		LastCut: func(holdfast.SessionID) (time.Time, bool) { return w.cut, false },
		Purge: func(ctx context.Context, id holdfast.SessionID) error {
			return collector.Purge(ctx, func(cp journal.Checkpoint) bool { return cp.Session == id })
		},
		Walls: func(context.Context, journal.Row) (wire.Walls, error) { return wire.Walls{}, nil },
		Taken: func(holdfast.SessionID, holdfast.SnapshotTaken) {},
		NewID: newID, Clock: func() time.Time { return time.Now().Add(w.later) }, Log: slog.New(slog.DiscardHandler), At: s.at,
	})
	must(w.t, err)
	s.branches = branch.New(branch.Config{
		Sessions: people{s}, Snapshots: s.snaps, Store: sessions, Journal: s.journal, Scope: holdfast.SessionID.Box,
		Hold: func() func() { return func() {} }, NewID: newID, Clock: time.Now,
	})
	w.server = s
}

// at ends the server at the point that the test chose.
func (s *server) at(_ holdfast.SessionID, point string) {
	w := s.w
	w.passed = append(w.passed, point)
	if w.reached != nil {
		w.reached(point)
	}
	if w.crash == point || w.countdown == 0 {
		w.crash, w.countdown = "", -1
		s.ended.Store(true)
		runtime.Goexit()
	}
	if w.countdown > 0 {
		w.countdown--
	}
}

// do runs work, and reports whether the server ended in it. Then another one is started.
func (w *world) do(work func()) (crashed bool) {
	w.t.Helper()
	done := make(chan struct{})
	whole := false
	go func() {
		defer close(done)
		work()
		whole = true
	}()
	<-done
	if crashed = w.ended.Load(); crashed {
		w.start()
	} else if !whole {
		w.t.FailNow() // work has called Fatal
	}
	return crashed
}

// whole fails the test for an error of a server that has not ended.
func (w *world) whole(err error) {
	w.t.Helper()
	if err != nil && !w.ended.Load() {
		w.t.Fatal(err)
	}
}

// gate is the database of a server, for sessions.
type gate struct {
	*sqlite.Sessions
	s *server
}

func (g gate) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	if err := g.s.alive(); err != nil {
		return journal.Committed{}, err
	}
	g.s.w.commits++
	return g.Sessions.Commit(ctx, c)
}

func (g gate) Row(ctx context.Context, id holdfast.SessionID) (row journal.Row, err error) {
	if err := g.s.alive(); err != nil {
		return row, err
	}
	return g.Sessions.Row(ctx, id)
}

func (g gate) Head(ctx context.Context, id holdfast.SessionID) (int64, error) {
	if err := g.s.alive(); err != nil {
		return 0, err
	}
	return g.Sessions.Head(ctx, id)
}

// points is the database of a server, for checkpoints.
type points struct {
	snapshot.Store
	s *server
}

func (p points) Newest(ctx context.Context, scope holdfast.BoxID) (cp journal.Checkpoint, ok bool, err error) {
	if err := p.s.alive(); err != nil {
		return cp, false, err
	}
	return p.Store.Newest(ctx, scope)
}

func (p points) Packs(ctx context.Context, numbers []int64) ([]journal.Pack, error) {
	list, err := p.Store.Packs(ctx, numbers)
	return slices.DeleteFunc(list, func(k journal.Pack) bool { return k.Number == p.s.w.lost }), err
}

func (w *world) dir(id holdfast.SessionID) string {
	return filepath.Join(w.base, "sessions", string(id))
}

func (w *world) at(name string) string { return filepath.Join(w.dir(w.id), name) }

func (w *world) rowOf(id holdfast.SessionID) journal.Row {
	row, err := w.store.Sessions.Row(context.WithoutCancel(w.t.Context()), id)
	must(w.t, err)
	return row
}

func (w *world) row() journal.Row { return w.rowOf(w.id) }

func (w *world) write(name, content string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	must(w.t, os.WriteFile(w.at(name), []byte(content), 0o644))
}

// begin starts a turn, which first makes the files ready.
func (w *world) begin() holdfast.TurnID {
	w.t.Helper()
	w.ready()
	id, row := holdfast.TurnID(w.newID()), w.row()
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{
		{Type: holdfast.EventMessageUser, Turn: id, Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "go"}}}},
		{Type: holdfast.EventTurnStarted, Turn: id, Data: holdfast.TurnStartedData{Number: row.LastTurn + 1, MessageSeq: row.LastSeq + 1}},
	}
	c.Turns = []journal.TurnChange{{ID: id, To: holdfast.TurnRunning, Number: row.LastTurn + 1, MessageSeq: row.LastSeq + 1}}
	_, err := w.journal.Commit(w.t.Context(), c)
	must(w.t, err)
	return id
}

// end completes a turn, and returns what its stages get.
func (w *world) end(id holdfast.TurnID) stages.Settled {
	w.t.Helper()
	row := w.row()
	c := journal.NewChange(w.id)
	end := holdfast.TurnEnded{Number: row.LastTurn}
	c.Events = []journal.Draft{{Type: holdfast.EventTurnCompleted, Turn: id, Data: end}}
	c.Turns = []journal.TurnChange{{ID: id, From: holdfast.TurnRunning, To: holdfast.TurnCompleted, EndSeq: row.LastSeq + 1}}
	done, err := w.journal.Commit(w.t.Context(), c)
	must(w.t, err)
	return stages.Settled{Row: done.Row, Turn: id, Status: holdfast.TurnCompleted, Number: row.LastTurn, Seq: row.LastSeq + 1}
}

// turn runs a turn that changes files, and then its snapshot.
func (w *world) turn(change func()) holdfast.TurnID {
	w.t.Helper()
	id := w.begin()
	if change != nil {
		change()
	}
	must(w.t, w.snaps.After(w.t.Context(), w.end(id)))
	return id
}

// stored lists the stored checkpoints of the session, newest first.
func (w *world) stored() []journal.Checkpoint {
	list, err := w.store.Checkpoints.Checkpoints(w.t.Context(), w.id, journal.Place{}, 1000)
	must(w.t, err)
	return list
}

// log returns the events of a type.
func (w *world) log(typ holdfast.EventType) (out []holdfast.Event) {
	for ev, err := range w.journal.Read(w.t.Context(), w.id, 0) {
		must(w.t, err)
		if ev.Type == typ {
			out = append(out, ev)
		}
	}
	return out
}

// find returns a checkpoint by its id or that of a turn.
func (w *world) find(id string) (cp holdfast.Checkpoint, files journal.Checkpoint) {
	w.t.Helper()
	cp, files, err := w.snaps.Find(w.t.Context(), w.row(), holdfast.CheckpointID(id))
	must(w.t, err)
	return cp, files
}

// rewind moves the session back.
func (w *world) rewind(to, files string) holdfast.Rewound {
	w.t.Helper()
	out, err := w.branches.Rewind(w.t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(to), Files: files})
	must(w.t, err)
	return out.Rewound
}

func (w *world) ready() {
	w.t.Helper()
	must(w.t, w.snaps.Ready(w.t.Context(), w.row()))
}

// files describes the files of a checkpoint: it restores them somewhere else.
func (w *world) files(cp journal.Checkpoint) map[string]string {
	w.t.Helper()
	dir := quickDir(w.t)
	list, err := w.store.Checkpoints.Packs(w.t.Context(), cp.Packs)
	must(w.t, err)
	var set pack.Set
	for _, p := range list {
		id, err := pack.ParsePackID(p.ID)
		must(w.t, err)
		set = append(set, id)
	}
	for name, text := range map[string]string{"workspace": cp.Workspace, "home": cp.Home} {
		if text == "" {
			continue
		}
		root, err := hex.DecodeString(text)
		must(w.t, err)
		must(w.t, tree.Restore(w.t.Context(), w.packs.In(set), pack.ID(root), filepath.Join(dir, name), owners()))
	}
	return describe(w.t, dir)
}

// now describes the files of the session.
func (w *world) now() map[string]string { return describe(w.t, w.dir(w.id)) }

// describe reads the trees in a directory by other means than a scan, one line for each entry.
func describe(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"workspace", "home"} {
		top := filepath.Join(dir, name)
		if _, err := os.Lstat(top); err != nil {
			continue
		}
		must(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
			must(t, err)
			rel, err := filepath.Rel(dir, path)
			must(t, err)
			st, content := entryAt(t, path)
			out[rel] = fmt.Sprintf("%o %d:%d %d%s", st.Mode, st.Uid, st.Gid, st.Mtim.Nano(), content)
			return nil
		}))
	}
	return out
}

// entryAt returns the stat of a path, which may be a link, and the quoted bytes of a file or the target of a link.
func entryAt(t testing.TB, path string) (st syscall.Stat_t, content string) {
	t.Helper()
	must(t, syscall.Lstat(path, &st))
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		data, err := os.ReadFile(path)
		must(t, err)
		content = fmt.Sprintf(" %q", data)
	case syscall.S_IFLNK:
		target, err := os.Readlink(path)
		must(t, err)
		content = " to " + target
	}
	return st, content
}

// sameFiles reports the differences between two descriptions.
func sameFiles(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			lines = append(lines, fmt.Sprintf("%s is %q, want %q", name, got[name], want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			lines = append(lines, fmt.Sprintf("%s is %q, and was not there", name, got[name]))
		}
	}
	if len(lines) > 0 {
		t.Errorf("%s:\n%s", what, strings.Join(lines[:min(len(lines), 8)], "\n"))
	}
}
