package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are the files of a tree.
type files map[string]string

// world is a server's database and packs, with sessions that take checkpoints.
type world struct {
	t     testing.TB
	dir   string
	steps *steps
	cfg   Config
	// now is the time of day in milliseconds.
	now  *atomic.Int64
	rand *rand.Rand

	db    *sqlite.Store
	packs *pack.Store
	c     *Collector
	// present are the files of each session, taken those of each checkpoint.
	present map[int]files
	taken   map[holdfast.CheckpointID]files
	last    int
}

func newWorld(t testing.TB, cfg Config) *world {
	dir, err := os.MkdirTemp("/dev/shm", "hf-collect")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { must(t, rooted.RemoveAll(dir)) })
	w := &world{
		t: t, dir: dir, cfg: cfg, now: clockAt(1_700_000_000_000), rand: rand.New(rand.NewPCG(1, 2)),
		present: map[int]files{}, taken: map[holdfast.CheckpointID]files{},
	}
	w.open()
	t.Cleanup(w.close)
	return w
}

// clockAt returns a clock.
func clockAt(ms int64) *atomic.Int64 {
	n := &atomic.Int64{}
	n.Store(ms)
	return n
}

// clock returns the time of day, pass lets time pass.
func (w *world) clock() time.Time { return time.UnixMilli(w.now.Load()) }

func (w *world) pass(d time.Duration) { w.now.Add(d.Milliseconds()) }

var worldKeys = pack.Keys{ID: [32]byte{9}}

func record(data []byte) (holdfast.CheckpointID, bool) {
	id, err := holdfast.Parse[holdfast.CheckpointID](string(data))
	return id, err == nil
}

// open opens database and packs as a start of a server does, with no failures.
func (w *world) open() {
	w.t.Helper()
	var err error
	w.db, err = sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(w.dir, "holdfast.db"), Clock: w.clock})
	must(w.t, err)
	w.openPacks()
}

func (w *world) openPacks() {
	w.t.Helper()
	var err error
	w.steps = &steps{}
	w.packs, err = pack.Open(filepath.Join(w.dir, "packs"), worldKeys, pack.Config{Disk: stepDisk{steps: w.steps}})
	must(w.t, err)
	w.cfg.DB, w.cfg.Packs, w.cfg.Record = stepDB{w.db.Checkpoints, w.steps}, w.packs, record
	w.cfg.Clock = w.clock
	w.c = New(w.cfg)
}

func (w *world) close() {
	if err := w.db.Close(); err != nil {
		w.t.Error(err)
	}
}

// restart starts a server again. The database may stay open: what it has acknowledged is durable.
func (w *world) restart() Started {
	w.t.Helper()
	w.openPacks()
	st, err := w.c.Start(w.t.Context())
	must(w.t, err)
	return st
}

// copied returns an open copy of a world, whose database must be closed.
func (w *world) copied(t testing.TB) *world {
	t.Helper()
	v := *w
	v.now = clockAt(w.now.Load())
	dir, err := os.MkdirTemp(filepath.Dir(w.dir), "hf-collect")
	must(t, err)
	t.Cleanup(func() { must(t, rooted.RemoveAll(dir)) }) // of a test that fails before end
	must(t, os.CopyFS(dir, os.DirFS(w.dir)))
	v.t, v.dir, v.taken, v.present = t, dir, maps.Clone(w.taken), map[int]files{}
	for n, f := range w.present {
		v.present[n] = maps.Clone(f)
	}
	v.open()
	return &v
}

// end closes and removes a copy.
func (w *world) end() {
	w.t.Helper()
	w.close()
	must(w.t, rooted.RemoveAll(w.dir))
}

func session(n int) holdfast.SessionID {
	return holdfast.SessionID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n))
}

func (w *world) create(n int) {
	w.t.Helper()
	c := journal.NewChange(session(n))
	c.Token = journal.Token(w.db.Epoch())
	c.Create = &journal.Row{Session: holdfast.Session{
		Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, AgentVersion: "sha256:" + holdfast.VersionID(strings.Repeat("0", 64)),
		Trust: holdfast.Untrusted, Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions,
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated}}
	_, err := w.db.Sessions.Commit(w.t.Context(), journal.Encoded{Change: c, Data: [][]byte{[]byte(`{}`)}})
	must(w.t, err)
	w.present[n] = files{}
}

// taking is a checkpoint on its way, as a turn makes it: begin reads the list and stores blobs, commit
// does the rest.
type taking struct {
	w    *world
	n    int
	list []int64
	out  *pack.Writer
	root pack.ID
	dir  string
}

// begin reads the newest list and stores the present files of a session.
func (w *world) begin(n int) (*taking, error) {
	w.t.Helper()
	k := &taking{w: w, n: n}
	newest, _, err := w.db.Checkpoints.Newest(w.t.Context(), session(n).Box())
	must(w.t, err)
	k.list = newest.Packs
	k.out = w.packs.Writer(w.set(newest.Packs))
	k.dir, err = os.MkdirTemp(w.dir, "tree")
	must(w.t, err)
	top, state := filepath.Join(k.dir, "top"), filepath.Join(k.dir, "state")
	must(w.t, os.Mkdir(top, 0o755))
	must(w.t, os.Mkdir(state, 0o700))
	defer func() { must(w.t, rooted.RemoveAll(k.dir)) }()
	for path, content := range w.present[n] {
		must(w.t, os.MkdirAll(filepath.Join(top, filepath.Dir(path)), 0o755))
		must(w.t, os.WriteFile(filepath.Join(top, path), []byte(content), 0o644))
		must(w.t, os.Chtimes(filepath.Join(top, path), w.clock(), time.Unix(1_700_000_000, 0)))
	}
	s := tree.NewScan(tree.Config{
		Dir: top, State: state, Sink: k.out, Now: time.Now, Bounds: rooted.Bounds{Entries: 20_000, Depth: 50},
		Owners: tree.Owners{Agent: tree.User{UID: os.Getuid(), GID: os.Getgid()}},
	})
	defer s.Close()
	if err := s.Live(w.t.Context()); err != nil {
		return nil, errors.Join(err, k.out.Abort())
	}
	r, err := s.Finish(w.t.Context())
	if err != nil {
		return nil, errors.Join(err, k.out.Abort())
	}
	k.root = r.Root
	return k, nil
}

// commit commits the checkpoint.
func (k *taking) commit() (holdfast.CheckpointID, error) {
	w := k.w
	w.last++
	id := holdfast.CheckpointID(fmt.Sprintf("01890a5d-0000-774b-bcce-%012x", w.last))
	infos, err := k.out.Commit(w.t.Context(), pack.Record{Data: []byte(id)})
	if err != nil {
		return "", err
	}
	cp := &journal.Checkpoint{Scope: session(k.n).Box(), Packs: k.list}
	cp.ID, cp.Session, cp.Reason, cp.Seq, cp.Workspace = id, session(k.n), holdfast.CheckpointTurn, 1, k.root.String()
	var added []journal.Pack
	for _, in := range infos {
		added = append(added, journal.Pack{ID: in.ID.String(), Bytes: in.Bytes})
	}
	return id, w.store(cp, added, maps.Clone(w.present[k.n]))
}

// store commits a checkpoint to the database.
func (w *world) store(cp *journal.Checkpoint, added []journal.Pack, content files) error {
	if err := w.steps.next("commit"); err != nil {
		return err
	}
	c := journal.NewChange(cp.Session)
	c.Token = journal.Token(w.db.Epoch())
	c.Files = &journal.FilesChange{Checkpoint: cp, Packs: added}
	c.Events = []journal.Draft{{Type: holdfast.EventSnapshotTaken}}
	_, err := w.db.Sessions.Commit(w.t.Context(), journal.Encoded{Change: c, Data: [][]byte{[]byte(`{}`)}})
	if err == nil {
		w.taken[cp.ID] = content
	}
	return err
}

// take takes a checkpoint of a session. If its packs are gone, it tries once more.
func (w *world) take(n int) (id holdfast.CheckpointID, err error) {
	w.t.Helper()
	for range 2 {
		var k *taking
		if k, err = w.begin(n); err != nil {
			return "", err
		}
		if id, err = k.commit(); !holdfast.IsKind(err, holdfast.KindConflict) {
			return id, err
		}
	}
	return id, err
}

// turn changes the files of a session and takes a checkpoint, which must not fail.
func (w *world) turn(n int) holdfast.CheckpointID {
	w.t.Helper()
	w.edit(n)
	w.pass(time.Minute)
	id, err := w.take(n)
	must(w.t, err)
	return id
}

// edit changes the files of a session.
func (w *world) edit(n int) {
	path := fmt.Sprintf("d%d/f%d", w.rand.IntN(3), w.rand.IntN(6))
	if w.rand.IntN(6) == 0 {
		delete(w.present[n], path)
		return
	}
	data := make([]byte, 1+w.rand.IntN(3000))
	for i := range data {
		data[i] = byte(w.rand.Uint32())
	}
	w.present[n][path] = string(data)
}

// fork makes a session from a checkpoint, and holds that one, so that histories with forks have held checkpoints.
func (w *world) fork(n int, from journal.Checkpoint) {
	w.t.Helper()
	w.create(n)
	w.last++
	cp := from
	cp.ID = holdfast.CheckpointID(fmt.Sprintf("01890a5d-0000-774b-bcce-%012x", w.last))
	cp.Session, cp.Scope, cp.Reason, cp.Seq, cp.Order, cp.Held = session(n), session(n).Box(), holdfast.CheckpointFork, 1, 0, false
	cp.CreatedAt = time.Time{}
	must(w.t, w.store(&cp, nil, w.taken[from.ID]))
	w.hold(from, true)
	w.present[n] = maps.Clone(w.taken[from.ID])
}

// hold holds a checkpoint, or releases it.
func (w *world) hold(cp journal.Checkpoint, held bool) {
	w.t.Helper()
	c := journal.NewChange(cp.Session)
	c.Token = journal.Token(w.db.Epoch())
	c.Files = &journal.FilesChange{Hold: &journal.Hold{Checkpoint: cp.ID, Held: held}}
	_, err := w.db.Sessions.Commit(w.t.Context(), journal.Encoded{Change: c})
	must(w.t, err)
}

// set returns the packs with these numbers.
func (w *world) set(numbers []int64) (out pack.Set) {
	w.t.Helper()
	list, err := w.db.Checkpoints.Packs(w.t.Context(), numbers)
	must(w.t, err)
	for _, p := range list {
		id, err := pack.ParsePackID(p.ID)
		must(w.t, err)
		out = append(out, id)
	}
	return out
}

// stored returns all checkpoints.
func (w *world) stored() []journal.Checkpoint {
	w.t.Helper()
	return w.all(w.db.Checkpoints.Needed(w.t.Context()))
}

func (w *world) all(seq iter.Seq2[journal.Checkpoint, error]) (out []journal.Checkpoint) {
	for cp, err := range seq {
		must(w.t, err)
		out = append(out, cp)
	}
	return out
}

// newest returns the newest checkpoint of a session.
func (w *world) newest(n int) journal.Checkpoint {
	w.t.Helper()
	cp, ok, err := w.db.Checkpoints.Newest(w.t.Context(), session(n).Box())
	must(w.t, err)
	if !ok {
		w.t.Fatalf("session %d has no checkpoint", n)
	}
	return cp
}

// collect lets the grace pass and collects, until nothing is left to do.
func (w *world) collect() {
	w.t.Helper()
	for range 4 {
		_, err := w.c.Collect(w.t.Context(), false)
		must(w.t, err)
		w.pass(2 * time.Hour)
	}
}

// restores checks that each stored checkpoint has exactly its files.
func (w *world) restores(when string) {
	w.t.Helper()
	for _, cp := range w.stored() {
		want, ok := w.taken[cp.ID]
		if !ok {
			w.t.Errorf("%s: checkpoint %s is stored, but was never acknowledged", when, cp.ID)
		}
		got, err := w.content(cp)
		if err != nil || ok && !maps.Equal(got, want) {
			w.t.Fatalf("%s: checkpoint %s has %d files instead of %d, or others: %v", when, cp.ID, len(got), len(want), err)
		}
	}
}

// content reads the files of a checkpoint from the packs that it lists.
func (w *world) content(cp journal.Checkpoint) (files, error) {
	out := files{}
	src, root := w.packs.In(w.set(cp.Packs)), parse(cp.Workspace)
	var walk func(dir string) error
	walk = func(dir string) error {
		for e, err := range tree.List(w.t.Context(), src, root, dir) {
			if err != nil {
				return err
			}
			path := filepath.Join(dir, e.Name)
			if e.Type == tree.Dir {
				if err := walk(path); err != nil {
					return err
				}
				continue
			}
			_, r, err := tree.Read(w.t.Context(), src, root, path)
			if err != nil {
				return err
			}
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			out[path] = string(b)
		}
		return nil
	}
	return out, walk(".")
}

// clean checks that the disk has exactly the packs that the database knows, that each of them is listed
// by a checkpoint, that no temporary file is left, and that each checkpoint of a turn has its record.
func (w *world) clean(when string) {
	w.t.Helper()
	known, err := w.db.Checkpoints.AllPacks(w.t.Context())
	must(w.t, err)
	listed := map[int64]bool{}
	for _, cp := range w.stored() {
		for _, n := range cp.Packs {
			listed[n] = true
		}
	}
	want := map[string]bool{}
	for _, p := range known {
		want[p.ID+".v1.pack"] = true
		if !listed[p.Number] || p.Unused != nil {
			w.t.Errorf("%s: pack number %d is stored, listed %v, marked %v", when, p.Number, listed[p.Number], p.Unused)
		}
	}
	names, err := os.ReadDir(filepath.Join(w.dir, "packs"))
	must(w.t, err)
	for _, n := range names {
		if !want[n.Name()] {
			w.t.Errorf("%s: %s is left", when, n.Name())
		}
		delete(want, n.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w.t.Errorf("%s: %s is missing", when, name)
	}
	recorded := w.recorded()
	for _, cp := range w.stored() {
		if cp.Reason == holdfast.CheckpointTurn && !recorded[cp.ID] {
			w.t.Errorf("%s: checkpoint %s has no record", when, cp.ID)
		}
	}
}

// recorded returns the checkpoints that have a record in a pack.
func (w *world) recorded() map[holdfast.CheckpointID]bool {
	w.t.Helper()
	out := map[holdfast.CheckpointID]bool{}
	files, err := w.packs.List()
	must(w.t, err)
	for _, f := range files {
		records, err := w.packs.RecordsOf(f.ID)
		must(w.t, err)
		for _, r := range records {
			out[holdfast.CheckpointID(r)] = true
		}
	}
	return out
}
