package snapshot_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestRandomHistories: whatever happens to a session, and wherever the server ends, each checkpoint that is
// listed has the files and the conversation of its time, and the session goes on from one of them
// (I-42, I-43, HZ-13).
//
// ASH-20.
func TestRandomHistories(t *testing.T) { wantHistories(t, 14) }

// TestRandomHistoriesLong does the same more often.
func TestRandomHistoriesLong(t *testing.T) {
	testkit.Long(t)
	wantHistories(t, 400)
}

func wantHistories(t *testing.T, n int) {
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &history{
				world: newWorld(t, true), r: rand.New(rand.NewPCG(uint64(seed), 18)), files: map[string]files{}, lines: map[string][]string{}, late: map[string]bool{},
			}
			h.tree = h.now()
			for range 14 {
				h.step()
				if h.settle(); t.Failed() {
					t.Fatalf("history:\n%s", strings.Join(h.done, "\n"))
				}
			}
			h.checkAll()
			if t.Failed() {
				t.Logf("history:\n%s", strings.Join(h.done, "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
}

type files = map[string]string

// history is a session with what a reader of its life remembers: the files and the turns of each
// checkpoint, and of the present.
type history struct {
	*world
	r     *rand.Rand
	files map[string]files
	lines map[string][]string
	tree  files
	line  []string
	done  []string
	// late are the late checkpoints that were seen.
	late map[string]bool
}

func (h *history) note(format string, args ...any) {
	h.done = append(h.done, fmt.Sprintf(format, args...))
}

// attempt runs work, which the end of the server may cut off.
func (h *history) attempt(work func()) (crashed bool) {
	h.t.Helper()
	if h.countdown = -1; h.r.IntN(3) == 0 {
		h.countdown = h.r.IntN(5)
	}
	if crashed = h.do(work); crashed {
		h.note("  the server ended at %s", h.passed[len(h.passed)-1])
	}
	h.countdown = -1
	return crashed
}

// learn remembers new checkpoints up to an event with the present files and turns.
func (h *history) learn(upto int64) {
	h.t.Helper()
	for _, cp := range h.stored() {
		id := string(cp.ID)
		if cp.Reason == holdfast.CheckpointLate && !h.late[id] {
			// A turn that changed nothing gets what people changed after it, if the server ended before it kept that.
			h.late[id] = true
			delete(h.files, id)
		}
		if h.files[id] == nil && cp.Seq <= upto {
			h.files[id], h.lines[id] = h.tree, slices.Clone(h.line)
			h.note("  checkpoint %s, %s at #%d", short(id), cp.Reason, cp.Seq)
		}
	}
}

func short(id string) string { return id[len(id)-6:] }

// mutate changes some files.
func (h *history) mutate() {
	for range h.r.IntN(4) {
		name := []string{"workspace/a", "workspace/b", "workspace/d/c", "workspace/d/e", "home/h"}[h.r.IntN(5)]
		if h.r.IntN(4) == 0 {
			must(h.t, os.RemoveAll(h.at([]string{name, filepath.Dir(name)}[h.r.IntN(2)*btoi(strings.Contains(name, "/d/"))])))
			continue
		}
		h.write(name, fmt.Sprint(h.r.IntN(1000)))
		must(h.t, os.Chmod(h.at(name), os.FileMode(0o600|h.r.IntN(0o100))))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// step lets something happen.
func (h *history) step() {
	switch h.r.IntN(8) {
	case 0, 1, 2:
		h.runTurn()
	case 3:
		h.mutate()
		h.tree = h.now()
		h.note("files change outside of a turn")
		h.attempt(func() { h.snaps.Take(h.t.Context(), h.row(), holdfast.CheckpointDirect) })
		h.learn(math.MaxInt64)
	case 4, 5:
		h.goBack()
	case 6:
		h.lose()
	case 7:
		h.note("the server starts again")
		h.start()
	}
}

func (h *history) runTurn() {
	id := h.begin()
	if h.r.IntN(4) > 0 {
		h.mutate()
	}
	same := maps.Equal(h.tree, h.now())
	h.tree = h.now()
	settled := h.end(id)
	h.note("turn %s, unchanged %v", short(string(id)), same)
	settled.Idle = same
	h.line = append(slices.Clone(h.line), string(id))
	h.attempt(func() { h.whole(h.snaps.After(h.t.Context(), settled)) })
	h.learn(math.MaxInt64)
	if h.files[string(id)] == nil {
		h.files[string(id)], h.lines[string(id)] = h.tree, h.line
	}
}

func (h *history) goBack() {
	ids := slices.Sorted(maps.Keys(h.files))
	if len(ids) == 0 {
		return
	}
	h.settle()
	to := ids[h.r.IntN(len(ids))]
	how := []string{"", "keep"}[h.r.IntN(2)]
	h.note("rewind to %s, files %q", short(to), how)
	before := len(h.log(holdfast.EventSessionRewound))
	h.attempt(func() {
		_, err := h.branches.Rewind(h.t.Context(), h.id, holdfast.RewindSession{To: holdfast.CheckpointID(to), Files: how})
		h.whole(err)
	})
	rewinds := h.log(holdfast.EventSessionRewound)
	if len(rewinds) == before {
		h.learn(math.MaxInt64)
		return
	}
	h.learn(rewinds[before].Seq)
	if cp, _ := h.find(to); cp.Abandoned {
		h.t.Errorf("the rewind to %s has abandoned it", short(to))
	}
	h.line = h.lines[to]
	if how == "" {
		h.tree = h.files[to]
		h.half()
	}
	h.learn(math.MaxInt64)
}

// half lets files be partly replaced, if the server ended in between.
func (h *history) half() {
	_, marked, err := h.store.Checkpoints.RestoreOf(h.t.Context(), h.id.Box())
	must(h.t, err)
	if !marked {
		return
	}
	for name := range h.now() {
		if info, err := os.Lstat(h.at(name)); err == nil && info.Mode().IsRegular() && h.tree[name] == "" && h.r.IntN(2) == 0 {
			must(h.t, os.Remove(h.at(name)))
		}
	}
}

// lose removes the workspace; the session is resumed from its newest checkpoint.
func (h *history) lose() {
	_, stored, err := h.snaps.Here(h.t.Context(), h.row())
	must(h.t, err)
	if stored.ID == "" {
		return
	}
	h.note("the files are lost")
	must(h.t, os.RemoveAll(h.at("workspace")))
	must(h.t, os.RemoveAll(h.at("home")))
	h.tree = h.files[string(stored.ID)]
	for {
		h.start()
		h.ready()
		if _, err := os.Lstat(h.at("workspace")); err == nil {
			return
		}
		newest, err := h.snaps.Newest(h.t.Context(), h.row())
		must(h.t, err)
		if newest == "" {
			h.t.Fatal("no checkpoint to restore")
		}
		if !h.attempt(func() { h.whole(h.snaps.Restore(h.t.Context(), h.row(), newest)) }) {
			return
		}
	}
}

// settle makes the files ready, and compares the session with what is remembered.
func (h *history) settle() {
	for h.attempt(func() { h.whole(h.snaps.Ready(h.t.Context(), h.row())) }) {
		h.learn(math.MaxInt64)
	}
	h.learn(math.MaxInt64)
	commits := h.commits
	h.ready()
	if h.commits != commits {
		h.t.Error("a second Ready writes")
	}
	sameFiles(h.t, "the files now", h.now(), h.tree)
	var turns []string
	c, err := conversation.Read(h.journal.Read(h.t.Context(), h.id, 0))
	must(h.t, err)
	for _, it := range c.Items {
		if e, ok := it.(*conversation.Ended); ok {
			turns = append(turns, string(e.Turn))
		}
	}
	if !slices.Equal(turns, h.line) {
		h.t.Errorf("the conversation has turns %v, want %v", turns, h.line)
	}
	if row := h.row(); row.CompletedTurns != int64(len(h.line)) {
		h.t.Errorf("the row has %d completed turns of %d", row.CompletedTurns, len(h.line))
	}
}

// checkAll compares every checkpoint that is listed, and every one that is remembered.
func (h *history) checkAll() {
	h.t.Helper()
	page, err := h.snaps.List(h.t.Context(), h.row(), "", 1000)
	must(h.t, err)
	listed := map[string]bool{}
	for _, cp := range page.Checkpoints {
		listed[string(cp.ID)] = true
		want, known := h.files[string(cp.ID)]
		if !known {
			h.t.Errorf("checkpoint %s came from nowhere", cp.ID)
			continue
		}
		var last string
		if line := h.lines[string(cp.ID)]; len(line) > 0 {
			last = line[len(line)-1]
		}
		if string(cp.Turn) != last {
			h.t.Errorf("checkpoint %s is at turn %q, want %q", cp.ID, cp.Turn, last)
		}
		if off := !h.onLine(cp.Turn, string(cp.ID)); off && !cp.Abandoned {
			h.t.Errorf("checkpoint %s of a turn that was left is not abandoned", short(string(cp.ID)))
		}
		_, stored := h.find(string(cp.ID))
		sameFiles(h.t, fmt.Sprintf("checkpoint %s (%s)", short(string(cp.ID)), cp.Reason), h.world.files(stored), want)
	}
	for id := range h.files {
		if !listed[id] {
			h.t.Errorf("checkpoint %s is lost", id)
		}
	}
}

// onLine reports whether a checkpoint's turn is in the present conversation.
func (h *history) onLine(turn holdfast.TurnID, _ string) bool {
	return turn == "" || slices.Contains(h.line, string(turn))
}
