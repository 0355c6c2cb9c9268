package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/ignore"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/recall"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

const (
	// stillTime is how long the processes of a box are stopped for a snapshot at most.
	stillTime = 100 * time.Millisecond
	// patience is how long a scan may read files while its request to stop the processes keeps others from using the box.
	patience = stillTime / 4
	// mostEntries is how many files and directories a tree may have. A snapshot of a larger tree fails.
	mostEntries = 20_000_000
	// mostPaths is how many paths each list of an event snapshot.taken has at most.
	mostPaths = 20
)

// names are the trees of a scope, in the order in which they are scanned.
var names = [2]string{"workspace", "home"}

const scansDir = "scans" // a directory next to the trees: each scan writes into it which files it saw

// roots are the ids of the trees of a scope; the zero id stands for a tree that does not exist.
type roots [2]pack.ID

func rootsOf(cp journal.Checkpoint) (r roots, err error) {
	for i, text := range []string{cp.Workspace, cp.Home} {
		if text == "" {
			continue
		}
		if n, derr := hex.Decode(r[i][:], []byte(text)); derr != nil || n != len(r[i]) {
			return r, holdfast.Errorf(holdfast.KindInternal, "snapshot", "checkpoint %s names the tree %s, which is not a valid id", cp.ID, holdfast.Quote(text))
		}
	}
	return r, nil
}

// text returns the id of tree i in hexadecimal, as checkpoints store it; "" if the snapshot has no tree i.
func (r roots) text(i int) string {
	if r[i] == (pack.ID{}) {
		return ""
	}
	return r[i].String()
}

// moment is the place of a checkpoint in the log.
type moment struct {
	reason holdfast.CheckpointReason
	// own is true for the checkpoint of a turn's end, where seq is the number of the event that ends the turn. For any
	// other, seq becomes the number of the event that records it, so that no two checkpoints of a session have the same.
	own bool
	seq int64
	// turn is the id of the newest ended turn, number is its number.
	turn   holdfast.TurnID
	number int64
}

// scanned is the outcome of reading the trees of a scope.
type scanned struct {
	roots   roots
	results [2]tree.Result
	// same is true if the trees are equal to those of the checkpoint before, whose packs have the numbers known.
	same   bool
	writer *pack.Writer
	known  []int64
	scans  [2]*tree.Scan
	// halt is the open request to stop the processes of the box, or nil. stopEarly says that the scan may make that
	// request when it reads the first file; it is false once the scan has read many files, and while the processes stand
	// still.
	halt      *halt
	stopEarly bool
	// chosen decides which paths of a borrowed workspace are stored. If none is stored, off is the reason.
	chosen *ignore.Selection
	off    error
}

// close ends the scans, waits until processes that were stopped go on, and removes packs that were not committed.
func (x *scanned) close() {
	_ = x.awake() // the error is ignored: if the snapshot succeeded, awake was called before
	for _, s := range x.scans {
		if s != nil {
			s.Close()
		}
	}
	if x.writer != nil {
		_ = x.writer.Abort()
	}
}

// saved stores on disk what the scans saw, for the next scans. After a failure the next scan reads every file.
func (s *Snapshots) saved(x *scanned, row journal.Row) {
	for i := range x.results {
		if err := x.results[i].Save(); err != nil {
			s.cfg.Log.Warn("the next snapshot of a session reads all of its files, because what this one saw could not be saved", "session_id", row.ID, "tree", names[i], "error", err)
		}
	}
}

// look is the input of one reading of the files of a session.
type look struct {
	row   journal.Row
	files Files
	// alive says that processes of the box may be alive. memory is what the server remembers of the files; it may be nil.
	alive  bool
	memory *recall.Memory
	sure   bool // the last look at the files succeeded, and this server made it
	// slowly lowers the priority of the scan. The scan calls it before it reads more than a few small files.
	slowly func()
}

// scan reads those files of a session's scope that changed since the checkpoint last, whose files are in packs. The
// caller has locked the scope, and closes the result also after an error.
func (s *Snapshots) scan(ctx context.Context, l look, last journal.Checkpoint, packs pack.Set) (*scanned, error) {
	x := &scanned{known: last.Packs, stopEarly: l.alive}
	before, err := rootsOf(last)
	if err != nil {
		return x, err
	}
	x.writer = s.cfg.Packs.Writer(packs)
	src := s.cfg.Packs.In(packs)
	for i, name := range names {
		dir := l.files.path(i)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			if i > 0 && l.files.Borrowed {
				x.roots[i] = before[i] // an interrupted deletion of the workspace removed the home: the newest checkpoint keeps it
			}
			continue
		}
		cfg := tree.Config{
			Dir: dir, State: filepath.Join(l.files.Dir, scansDir, name), Sink: x.writer, Source: src, Last: before[i], Owners: l.files.Owners,
			Processes: l.alive, Reads: func(long bool) { x.reads(ctx, s.cfg.Boxes, l, long) }, Bounds: rooted.Bounds{Entries: mostEntries, Depth: tree.MaxDepth}, Now: s.cfg.Clock,
			Exclude: func(path string, _ bool) bool { return i == 0 && s.exclude(path) },
		}
		if l.memory != nil {
			cfg.Memo = l.memory.Trees[i]
		}
		if i == 0 && l.files.Borrowed {
			cfg.Owners.Agent = l.files.Lent
			if err := choose(ctx, s, x, l.files, &cfg); err != nil {
				return x, err
			}
			if x.off != nil {
				continue
			}
		}
		x.scans[i] = tree.NewScan(cfg)
		if err := x.scans[i].Live(ctx); err != nil {
			if i > 0 || !x.tooLarge(err) {
				return x, err
			}
			x.scans[i].Close()
			x.scans[i] = nil
		}
	}
	s.cfg.At(l.row.ID, "scanned")
	if l.alive && x.changed() {
		if err := x.stand(ctx, s.cfg.Boxes, l.row); err != nil {
			return x, err
		}
	}
	for i, scan := range x.scans {
		if scan == nil {
			continue
		}
		if x.results[i], err = scan.Finish(ctx); err != nil {
			return x, err
		}
		x.roots[i] = x.results[i].Root
	}
	if x.chosen != nil && x.off == nil {
		if err := x.chosen.Steady(ctx); err != nil {
			return x, err
		}
	}
	x.same = last.ID != "" && x.roots == before
	return x, nil
}

// memory returns the Memory for the next look at the files of the checkpoint newest; nil if that must be a scan.
func (x *scanned) memory(newest *journal.Checkpoint) *recall.Memory {
	m := &recall.Memory{Newest: newest}
	for i, scan := range x.scans {
		if scan != nil {
			m.Trees[i] = scan.Memo()
		}
		if m.Trees[i] == nil && (scan != nil || i == 0) {
			return nil
		}
	}
	return m
}

func (x *scanned) newest() (newest time.Time) {
	for _, s := range x.scans {
		if s != nil && s.Newest().After(newest) {
			newest = s.Newest()
		}
	}
	return newest
}

func (x *scanned) changed() bool {
	for _, s := range x.scans {
		if s != nil && s.Changed() {
			return true
		}
	}
	return false
}

// halt is a request to stop the processes of the box, look at the trees, and let the processes go on.
type halt struct {
	// ready is closed when the processes may be stopped. Before that, cancel withdraws the request.
	ready  chan struct{}
	cancel context.CancelFunc
	// late is the timer that calls cancel after patience; nil for a request that stand made, which nobody withdraws.
	late *time.Timer
	// seen gets the result of the look at the trees. thawed gets that of Boxes.Still, when the processes go on.
	seen, thawed chan error
}

// reads is called before each file is read. Before the first one it requests that the processes of the box are stopped:
// so the event of the stop is written while the scan reads. If the scan turns out to be long, reads withdraws the
// request, and stand makes another one later.
func (x *scanned) reads(ctx context.Context, boxes Boxes, l look, long bool) {
	switch {
	case long && x.stopEarly:
		x.stopEarly = false
		x.withdraw()
	case x.stopEarly && x.halt == nil:
		x.ask(ctx, boxes, l.row)
		x.halt.late = time.AfterFunc(patience, x.halt.cancel)
	}
	if long {
		l.slowly()
	}
}

// ask requests that the processes are stopped: it calls Boxes.Still in a goroutine.
func (x *scanned) ask(ctx context.Context, boxes Boxes, row journal.Row) {
	ctx, cancel := context.WithCancel(ctx)
	h := &halt{ready: make(chan struct{}), cancel: cancel, seen: make(chan error, 1), thawed: make(chan error, 1)}
	x.halt = h
	go func() {
		defer cancel()
		// If a process could not be stopped, files may have changed while they were read: the event lists them as fuzzy.
		_, err := boxes.Still(ctx, row, stillTime, h.ready, func(ctx context.Context) error {
			err := x.still(ctx)
			h.seen <- err
			return err
		})
		h.thawed <- err
	}()
}

// withdraw cancels the open request to stop the processes, if there is one, and waits until Boxes.Still has returned.
func (x *scanned) withdraw() {
	if x.halt != nil {
		x.halt.cancel()
		<-x.halt.thawed
		x.halt = nil
	}
}

// stand looks again at all trees while the processes of the box stand still, or run if they cannot be stopped. It does
// not wait until they go on: awake does.
func (x *scanned) stand(ctx context.Context, boxes Boxes, row journal.Row) error {
	if x.halt != nil && !x.halt.late.Stop() {
		x.withdraw()
	}
	if x.halt == nil {
		x.ask(ctx, boxes, row)
	}
	x.stopEarly = false // the look while the processes stand still reads files too, which must not request another stop
	close(x.halt.ready)
	select {
	case err := <-x.halt.seen:
		return err
	case err := <-x.halt.thawed:
		x.halt.thawed <- err
		return err
	}
}

// awake waits until the processes that stand has stopped go on, and returns an error if they do not. If stand was not
// called, awake withdraws the open request to stop them.
func (x *scanned) awake() error {
	if x.halt == nil {
		return nil
	}
	select {
	case <-x.halt.ready:
	default:
		x.withdraw()
		return nil
	}
	err := <-x.halt.thawed
	x.halt = nil
	return err
}

func (x *scanned) still(ctx context.Context) error {
	if x.chosen != nil {
		x.chosen.Again()
	}
	for _, s := range x.scans {
		if s != nil {
			if err := s.Still(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// packs returns the packs that contain the files of a checkpoint; not_found if the database does not have one of them.
func (p *Points) packs(ctx context.Context, cp journal.Checkpoint) (pack.Set, error) {
	if len(cp.Packs) == 0 {
		return nil, nil
	}
	list, err := p.cfg.Store.Packs(ctx, cp.Packs)
	if err != nil {
		return nil, err
	}
	for _, n := range cp.Packs {
		if !slices.ContainsFunc(list, func(p journal.Pack) bool { return p.Number == n }) {
			return nil, holdfast.Errorf(holdfast.KindNotFound, "snapshot", "the database does not have pack %d, in which checkpoint %s has files", n, cp.ID)
		}
	}
	set := make(pack.Set, len(list))
	for i, p := range list {
		// The newest packs come first: they hold most of what changes next.
		if set[len(list)-1-i], err = pack.ParsePackID(p.ID); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// keep makes a checkpoint of the result of a scan: first it makes the packs durable, then one transaction adds the
// checkpoint and its event. It returns the checkpoint and the new packs, the newest first.
func (s *Snapshots) keep(ctx context.Context, row journal.Row, f Files, x *scanned, at moment, began time.Time, notices ...journal.Draft) (cp journal.Checkpoint, added pack.Set, err error) {
	if cp, err = newCheckpoint(s, row, f, x, at, began); err != nil {
		return cp, nil, err
	}
	record, err := coded.NewRecord(cp)
	if err != nil {
		return cp, nil, err
	}
	written, err := x.writer.Commit(ctx, pack.Record{Data: record, Always: true})
	if err != nil {
		return cp, nil, err
	}
	s.cfg.At(row.ID, "packed")
	taken := holdfast.SnapshotTaken{Checkpoint: cp.ID, Reason: cp.Reason, Files: cp.Files, Bytes: cp.Bytes}
	var packs []journal.Pack
	for _, p := range written {
		packs = append(packs, journal.Pack{ID: p.ID.String(), Bytes: p.Bytes})
		taken.Written += p.Bytes
		added = append(pack.Set{p.ID}, added...)
	}
	for i, r := range x.results {
		x.describe(&taken, i, r)
	}
	taken.DurationMS = clock.Milliseconds(s.cfg.Clock().Sub(began))
	done, err := s.cfg.Journal.CommitAt(context.WithoutCancel(ctx), row.ID, func(now journal.Row, c *journal.Change) error {
		event := journal.Draft{Type: holdfast.EventSnapshotTaken}
		if at.own {
			event.Turn = at.turn
		} else {
			cp.Seq = now.LastSeq + 1
		}
		taken.Seq = cp.Seq
		event.Data = taken
		c.Files = &journal.FilesChange{Checkpoint: &cp, Packs: packs}
		c.Events = append([]journal.Draft{event}, notices...)
		return nil
	})
	if err != nil {
		return cp, nil, err
	}
	cp.Packs = done.Packs
	s.cfg.At(row.ID, "committed")
	s.saved(x, row)
	s.cfg.Taken(row.ID, taken)
	return cp, added, nil
}

func newCheckpoint(s *Snapshots, row journal.Row, f Files, x *scanned, at moment, now time.Time) (journal.Checkpoint, error) {
	cp := journal.Checkpoint{Scope: f.Scope, Packs: x.known, Checkpoint: holdfast.Checkpoint{
		ID: holdfast.CheckpointID(at.turn), Session: row.ID, Reason: at.reason, Seq: at.seq, Turn: at.turn, Number: at.number,
		CreatedAt: now.UTC(), Workspace: x.roots.text(0), Home: x.roots.text(1),
	}}
	if !at.own {
		id, err := s.cfg.NewID()
		if err != nil {
			return cp, err
		}
		cp.ID = holdfast.CheckpointID(id)
	}
	for _, r := range x.results {
		cp.Files += int64(r.Files + r.Dirs + r.Links)
		cp.Bytes += min(r.Bytes, math.MaxInt64-cp.Bytes)
		cp.Fuzzy = cp.Fuzzy || r.FuzzyCount > 0 || r.Unchecked != ""
	}
	return cp, nil
}

// describe adds the result of the scan of tree i to the event.
func (x *scanned) describe(t *holdfast.SnapshotTaken, i int, r tree.Result) {
	t.Changed += int64(r.Changed)
	add := func(list *[]string, more *int, path string) {
		if len(*list) == mostPaths {
			*more++
			return
		}
		*list = append(*list, shown(i, path))
	}
	for _, p := range r.Fuzzy {
		add(&t.Fuzzy, &t.FuzzyMore, p)
	}
	if r.Unchecked != "" {
		add(&t.Fuzzy, &t.FuzzyMore, r.Unchecked)
	}
	for _, p := range r.Skipped {
		add(&t.Skipped, &t.SkippedMore, p.Path+": "+p.Why)
	}
	for _, p := range r.Mismatches {
		add(&t.Mismatched, &t.MismatchedMore, p)
	}
	t.FuzzyMore += r.FuzzyCount - len(r.Fuzzy)
	t.SkippedMore += r.SkippedCount - len(r.Skipped)
}

// shown returns a path in tree i as events show it: in UTF-8, and with ~/ before it if the tree is the home directory.
func shown(i int, path string) string {
	if names[i] == "home" {
		path = "~/" + path
	}
	return strings.ToValidUTF8(path, "\uFFFD")
}
