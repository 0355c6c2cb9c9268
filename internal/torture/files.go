package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
)

// aside is the directory for processes that outlive their turn. The hashes leave it out.
const aside = "bg"

// printsTree is a command that prints the hash of the working directory: of the types, modes, names and
// targets of its entries, and of the content of its files.
const printsTree = `echo "tree=$( { find . -path ./` + aside + ` -prune -o -printf '%y %m %p %l\n' | sort; ` +
	`find . -path ./` + aside + ` -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum; } | sha256sum | cut -c1-64)"`

var treePattern = regexp.MustCompile(`tree=([0-9a-f]{64})`)

// treeIn returns the hash that printsTree printed, empty if there is none.
func treeIn(text string) string {
	if m := treePattern.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// goal is what a checkpoint must hold: files with the hash tree, and the conversation up to a turn.
// If several hashes are possible, they are in among instead.
type goal struct {
	id    holdfast.CheckpointID
	tree  string
	among map[string]bool
	turn  holdfast.TurnID
}

// span is a time in which the files had one of the hashes in trees. any is true if they may have
// been in a state in between, because the server was killed while a command changed them.
type span struct {
	from  time.Time
	trees []string
	any   bool
}

// files is what the client of a session knows of its files and its conversation.
type files struct {
	// busy is true if turns may start processes that outlive them.
	busy bool
	// tree is the hash of the files now.
	tree string
	// saved is true if the present files are known to be in a checkpoint; ended is the number of
	// the event that ended the turn that made them, 0 if no turn made them.
	saved bool
	ended int64
	// spans are the times in which the files had known hashes, oldest first; each lasts until the next begins.
	spans []span
	// branch are the user's messages in the conversation; at maps each turn to those up to its end.
	branch []string
	turn   holdfast.TurnID
	at     map[holdfast.TurnID][]string
	// printed are the hashes that turns printed.
	printed map[holdfast.TurnID]string
	// acked are the checkpoints that the server acknowledged to the client.
	acked []goal
	// server is the server process that the client used last.
	server *child.Server
	counts Snapshots
	faults []string
}

func newFiles(n int) *files {
	return &files{busy: n%3 == 2, at: map[holdfast.TurnID][]string{}, printed: map[holdfast.TurnID]string{}}
}

func (f *files) bad(format string, args ...any) {
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// hear records the hash of the files that a tool of a turn printed.
func (f *files) hear(ev holdfast.Event) {
	var done holdfast.ToolFinished
	if ev.Type == holdfast.EventToolFinished && ev.Decode(&done) == nil {
		if tree := treeIn(done.Content); tree != "" {
			f.printed[ev.Turn] = tree
		}
	}
}

// change makes one random step with the session's files: an edit, a write, a rewind, a restore or a fork. In
// two of three cases it chooses a step that can reach the kill point at which the harness waits.
func (w *worker) change(ctx context.Context, k int) {
	f := w.files
	if srv, _ := w.h.current(); srv != f.server {
		// After each start of the server, compare one checkpoint, and read the hash of the files if it is not known.
		if f.server != nil && len(f.acked) > 0 {
			w.compare(ctx, f.acked[w.rng.IntN(len(f.acked))])
		}
		if f.server = srv; f.tree == "" {
			w.look(ctx)
		}
	}
	what := w.rng.IntN(10)
	if len(f.acked) == 0 {
		what = 0
	} else if w.rng.IntN(3) > 0 {
		switch w.h.points.wanted() {
		case "rewound":
			what = 6
		case "restoring", "restored":
			what = 6 + w.rng.IntN(3)
		case "renamed":
			what = 7 + w.rng.IntN(2)
		}
	}
	switch what {
	case 5:
		w.put(ctx, k)
	case 6, 9:
		w.rewind(ctx)
	case 7:
		w.restore(ctx)
	case 8:
		w.compare(ctx, f.acked[w.rng.IntN(len(f.acked))])
	default:
		w.edit(ctx, k)
	}
}

// begin starts a span in which the files have the hash f.tree, or one of trees.
func (w *worker) begin(trees ...string) *span {
	f := w.files
	f.spans = append(f.spans, span{from: time.Now(), trees: append(trees, f.tree)})
	return &f.spans[len(f.spans)-1]
}

// during calls do. If the server was replaced meanwhile, it sets s.any, because the files may be in a state between
// two known hashes.
func (w *worker) during(s *span, do func()) {
	before, _ := w.h.current()
	do()
	after, _ := w.h.current()
	s.any = s.any || before != after
}

// edit runs a turn whose tools change files, and waits for its snapshot.
func (w *worker) edit(ctx context.Context, k int) {
	f := w.files
	steps := []child.Step{child.Write(fmt.Sprintf("w/%d", w.rng.IntN(4)), fmt.Sprintf("turn %d\n", k))}
	if f.busy && w.rng.IntN(2) == 0 {
		steps = append(steps, child.Bash(fmt.Sprintf("mkdir -p %s; (for i in $(seq 150); do echo $i >> %[1]s/tick; sleep 0.02; done) >/dev/null 2>&1 &", aside)))
	}
	cmds := make([]string, 0, 5)
	for range 1 + w.rng.IntN(4) {
		cmds = append(cmds, w.edits(k))
	}
	steps = append(steps, child.Bash(strings.Join(append(cmds, printsTree), "; ")))
	text := scripted(steps)
	s := w.begin()
	var sent holdfast.Sent
	w.during(s, func() { sent = w.turn(ctx, k, text) })
	id := sent.Turn.ID
	if ctx.Err() != nil || id == "" {
		return
	}
	f.branch = append(slices.Clone(f.branch), text)
	f.turn, f.at[id] = id, f.branch
	if f.tree = f.printed[id]; f.tree == "" {
		f.bad("turn %s ended without the hash that its last tool prints", id)
		s.any = true
		w.look(ctx)
	}
	s.trees = append(s.trees, f.tree)
	f.saved, f.ended = false, w.ev.ended[id]
	w.settle(ctx, f.ended)
}

// edits returns a random shell command that changes files.
func (w *worker) edits(k int) string {
	n, m := w.rng.IntN(8), w.rng.IntN(8)
	switch w.rng.IntN(7) {
	case 0:
		return fmt.Sprintf("rm -rf d/%d", n)
	case 1:
		return fmt.Sprintf("mkdir -p d/%d/sub && echo %d > d/%d/sub/file", n, k, n)
	case 2:
		return fmt.Sprintf("mkdir -p d && head -c %d /dev/urandom > big%d", 1000+w.rng.IntN(200_000), n%3)
	case 3:
		return fmt.Sprintf("mkdir -p f && rm -rf f/%d && ln -s ../w/%d f/%[1]d", n, m)
	case 4:
		return fmt.Sprintf("mkdir -p x && echo run > x/%d && chmod %o x/%[1]d", n, []int{0o600, 0o644, 0o755}[m%3])
	default:
		return fmt.Sprintf("mkdir -p f && rm -f f/%d && echo %d >> f/%[1]d", n, k)
	}
}

// settle waits until a snapshot after an event is acknowledged. It returns false if the stream fails or 10 s pass.
func (w *worker) settle(ctx context.Context, after int64) bool {
	f := w.files
	ctx, cancel := context.WithTimeout(ctx, 2*pointPatience)
	defer cancel()
	srv, _ := w.h.current()
	for ev, err := range srv.Follow(ctx, w.id, after, holdfast.EventSnapshotTaken) {
		var taken holdfast.SnapshotTaken
		if err != nil {
			return false
		}
		if ev.Type == holdfast.EventSnapshotTaken && ev.Decode(&taken) == nil {
			f.saved = true
			f.acked = append(f.acked, goal{id: taken.Checkpoint, tree: f.tree, turn: f.turn})
			return true
		}
	}
	return false
}

// persist repeats a call that fails with kind unavailable, or because the server was replaced, for about a minute. It
// reports whether the call succeeded, and whether it was repeated. A later or other failure is a violation.
func (w *worker) persist(ctx context.Context, what string, do func(context.Context, *child.Server) error) (ok, repeated bool) {
	for end := time.Now().Add(patience); ctx.Err() == nil; {
		srv, changed := w.h.current()
		call, cancel := context.WithTimeout(ctx, callPatience)
		err := do(call, srv)
		cancel()
		if err == nil {
			return true, repeated
		}
		last, _ := w.h.current()
		if ctx.Err() == nil && (time.Now().After(end) || !holdfast.IsKind(err, holdfast.KindUnavailable) && last == srv) {
			w.files.bad("%s failed: %v", what, err)
			return false, repeated
		}
		repeated = true
		again(ctx, changed)
	}
	return false, repeated
}

// treeOf returns the hash of the files of a session; empty if it cannot be computed or the load ends.
func (w *worker) treeOf(ctx context.Context, id holdfast.SessionID) (tree string) {
	w.persist(ctx, "the hash of the files", func(ctx context.Context, srv *child.Server) error {
		res, err := srv.Exec(ctx, id, holdfast.ExecRequest{Command: printsTree, TimeoutMS: 20_000})
		if tree = treeIn(string(res.Stdout)); err == nil && tree == "" {
			err = fmt.Errorf("the command that hashes the files of the session failed: %s: %s%s", res.Class, res.Message, res.Stderr)
		}
		return err
	})
	return tree
}

// look asks for the hash of the present files and records it in a new span.
func (w *worker) look(ctx context.Context) {
	s := w.begin()
	w.files.tree = w.treeOf(ctx, w.id)
	s.trees = append(s.trees, w.files.tree)
}

// put writes a file outside of turns.
func (w *worker) put(ctx context.Context, k int) {
	s := w.begin()
	w.files.saved, w.files.ended = false, 0
	w.during(s, func() {
		w.persist(ctx, "a write", func(ctx context.Context, srv *child.Server) error {
			_, err := srv.WriteFile(ctx, w.id, fmt.Sprintf("w/put%d", w.rng.IntN(4)), strings.NewReader(fmt.Sprintf("put %d\n", k)), 0o644)
			return err
		})
		w.files.tree = w.treeOf(ctx, w.id)
	})
	s.trees = append(s.trees, w.files.tree)
}

// rewind moves the session back to a checkpoint. If the server was killed meanwhile, the log says whether
// the rewind happened, and the files must be as it says.
func (w *worker) rewind(ctx context.Context) {
	f := w.files
	to := f.acked[w.rng.IntN(len(f.acked))]
	before := f.tree
	from := goal{tree: before, turn: f.turn}
	w.begin(to.tree)
	srv, changed := w.h.current()
	call, cancel := context.WithTimeout(ctx, callPatience)
	out, err := srv.Rewind(call, w.id, holdfast.RewindSession{To: to.id})
	cancel()
	f.counts.Rewinds++
	back := err == nil
	if back {
		f.counts.done++
	}
	if err != nil {
		f.counts.CutRewinds++
		again(ctx, changed)
		if last, _ := w.h.current(); last == srv && !holdfast.IsKind(err, holdfast.KindUnavailable) {
			f.bad("a rewind to %s failed: %v", to.id, err)
		}
		back = w.rewoundTo(ctx, to.id)
	} else if from.id = out.Rewound.Kept; from.id != "" {
		f.acked = append(f.acked, from)
	}
	if back {
		f.turn, f.branch, f.tree, f.saved = to.turn, f.at[to.turn], to.tree, true
	}
	if got := w.treeOf(ctx, w.id); got != f.tree && ctx.Err() == nil {
		f.bad("after a rewind from %.8s to %s (%.8s, done: %v, error: %v) the files are %.8s", before, to.id, to.tree, back, err, got)
		f.counts.Wrong++
		f.tree = got
	}
}

// rewoundTo reports whether the log has a rewind that the client does not know, and the newest is to a checkpoint.
func (w *worker) rewoundTo(ctx context.Context, to holdfast.CheckpointID) (back bool) {
	f := w.files
	var rewinds int
	var last holdfast.CheckpointID
	w.persist(ctx, "reading the log", func(ctx context.Context, srv *child.Server) error {
		rewinds = 0
		for ev, err := range srv.AllEvents(ctx, w.id, 0) {
			if err != nil {
				return err
			}
			var r holdfast.Rewound
			if ev.Type == holdfast.EventSessionRewound && ev.Decode(&r) == nil {
				rewinds++
				last = r.Checkpoint
			}
		}
		return nil
	})
	back = rewinds > f.counts.done && last == to
	f.counts.done = rewinds
	return back
}

// restore pauses the session, removes its workspace directory, resumes it, and checks that the files are back.
func (w *worker) restore(ctx context.Context) {
	f := w.files
	w.begin()
	if !f.saved {
		// After a kill the next server takes the snapshot, when the files are first used.
		if w.look(ctx); f.ended == 0 || !w.settle(ctx, f.ended) {
			return
		}
	}
	pause := func(ctx context.Context, srv *child.Server) error {
		_, err := srv.PauseSession(ctx, w.id, holdfast.EndSession{})
		if holdfast.IsKind(err, holdfast.KindConflict) {
			err = nil // an earlier call, whose answer was lost, paused the session
		}
		return err
	}
	if ok, _ := w.persist(ctx, "a pause", pause); !ok {
		return
	}
	dir := filepath.Join(w.h.server.Data, "sessions", string(w.id), "workspace")
	gone := filepath.Join(w.h.server.Data, fmt.Sprintf("gone-%d", w.n))
	// Move the directory before it is removed: a scan of the files that has begun reads on in the moved one.
	if err := os.Rename(dir, gone); err != nil {
		f.bad("the workspace of a paused session cannot be moved: %v", err)
		return
	}
	ok, cut := w.persist(ctx, "a resume", func(ctx context.Context, srv *child.Server) error {
		_, err := srv.ResumeSession(ctx, w.id, holdfast.ResumeSession{})
		return err
	})
	f.counts.Restores++
	if cut {
		f.counts.CutRestores++
	}
	if got := w.treeOf(ctx, w.id); ok && got != f.tree && ctx.Err() == nil {
		f.bad("after a restore (interrupted: %v) the files are %.8s instead of %.8s", cut, got, f.tree)
		f.counts.Wrong++
		f.tree = got
	}
	_ = os.RemoveAll(gone)
}

// compare forks the session at the checkpoint of a goal, compares the files and the conversation of the fork with
// the goal, and ends the fork. If no hash of the goal is known, the files are not compared.
func (w *worker) compare(ctx context.Context, g goal) {
	f := w.files
	key := fmt.Sprintf("fork-%d-%d", w.n, w.rng.Int64())
	var fork holdfast.Session
	if ok, _ := w.persist(ctx, fmt.Sprintf("a fork at %s", g.id), func(ctx context.Context, srv *child.Server) (err error) {
		fork, err = srv.Fork(ctx, w.id, holdfast.ForkSession{At: g.id}, key)
		return err
	}); !ok {
		f.counts.Wrong++
		return
	}
	got := w.treeOf(ctx, fork.ID)
	var texts []string
	ok, _ := w.persist(ctx, "reading the log of a fork", func(ctx context.Context, srv *child.Server) error {
		texts = nil
		for ev, err := range srv.AllEvents(ctx, fork.ID, 0) {
			if err != nil {
				return err
			}
			var m holdfast.UserMessage
			if ev.Type == holdfast.EventMessageUser && ev.Decode(&m) == nil {
				texts = append(texts, m.Text())
			}
		}
		return nil
	})
	if ctx.Err() != nil || !ok {
		return
	}
	f.counts.Forks++
	if g.tree == "" && len(g.among) == 0 {
		f.counts.Opened++
	} else if f.counts.Compared++; got != g.tree && !g.among[got] {
		f.counts.Wrong++
		f.bad("a fork at checkpoint %s has the files %.8s instead of %.8s", g.id, got, g.tree)
	}
	if !slices.Equal(texts, f.at[g.turn]) {
		f.counts.Wrong++
		f.bad("a fork at checkpoint %s has %d messages instead of the %d up to turn %s", g.id, len(texts), len(f.at[g.turn]), g.turn)
	}
	w.persist(ctx, "the end of a fork", func(ctx context.Context, srv *child.Server) error {
		_, err := srv.EndSession(ctx, fork.ID, holdfast.EndSession{})
		return err
	})
}
