package snapshot_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestRandomBorrowed: whatever the user and the agent change, and wherever the server ends, a rewind changes exactly the paths of its plan,
// none of which somebody else changed since, to what the checkpoint has; every other path keeps inode, owner, mode and content.
func TestRandomBorrowed(t *testing.T) { wantBorrowed(t, 12) }

// TestRandomBorrowedLong does the same more often.
func TestRandomBorrowedLong(t *testing.T) {
	testkit.Long(t)
	wantBorrowed(t, 150)
}

func wantBorrowed(t *testing.T, n int) {
	refused, done := 0, 0
	for seed := range n {
		h := &shared{world: newBorrowed(t), r: rand.New(rand.NewPCG(uint64(seed), 82)), by: map[string]int{}}
		h.next(nil)
		for range 12 {
			h.step()
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(h.notes, "\n"))
			}
		}
		refused, done = refused+h.refused, done+h.done
	}
	if refused < n/2 || done < n/2 {
		t.Errorf("%d rewinds were refused and %d done: the test tries too little", refused, done)
	}
}

// shared is a user's own directory in which a session and the user work.
type shared struct {
	*world
	r     *rand.Rand
	notes []string
	// points are the turns, ended is when the newest ended. by maps a path to the number of points when the user last changed it.
	points        []holdfast.TurnID
	ended         time.Time
	by            map[string]int
	refused, done int
}

func (h *shared) note(format string, args ...any) {
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

// mutate changes some files.
func (h *shared) mutate(who string) {
	names := []string{"a", "d/b", "d/e/c", "d/e/x.log", "x.log", "f", "f/g", "d/.gitignore"}
	for range 1 + h.r.IntN(3) {
		name := names[h.r.IntN(len(names))]
		top, _, _ := strings.Cut(name, "/")
		switch h.r.IntN(6) {
		case 0:
			if err := os.RemoveAll(h.in([]string{name, top}[h.r.IntN(2)])); err != nil && !errors.Is(err, syscall.ENOTDIR) {
				h.t.Fatal(err)
			}
			h.note("  %s removes %s", who, name)
			continue
		case 1:
			if _, err := os.Lstat(h.in(name)); err == nil {
				must(h.t, os.Chmod(h.in(name), []os.FileMode{0o755, 0o700, 0o644}[h.r.IntN(3)]|0o700&^0o077))
				h.note("  %s changes the mode of %s", who, name)
			}
			continue
		}
		for at := name; at != "."; at = filepath.Dir(at) { // what is in the way goes
			if info, err := os.Lstat(h.in(at)); err == nil && info.IsDir() == (at == name) {
				must(h.t, os.RemoveAll(h.in(at)))
			}
		}
		text := fmt.Sprint(h.r.IntN(4))
		if strings.HasSuffix(name, ".gitignore") {
			text = []string{"*.log\n", "", "b\n"}[h.r.IntN(3)]
		}
		h.put(name, text)
		h.note("  %s writes %q to %s", who, text, name)
	}
}

// step lets something happen.
func (h *shared) step() {
	switch h.r.IntN(5) {
	case 0:
		// In the millisecond of a turn's end nobody can tell the user's work from the turn's, if the server ends then.
		restart := h.r.IntN(3) == 0 && time.Now().UnixMilli() > h.ended.UnixMilli()+2
		before := contents(h.t, h.mine)
		h.mutate("the user")
		if restart {
			h.start()
		}
		h.found() // before the next turn or rewind
		stored := h.files(h.stored()[0])
		for name, is := range contents(h.t, h.mine) {
			// What is left out from now on is none of the checkpoints' business.
			if before[name] != is && stored["workspace/"+name] != "" {
				h.by[name] = len(h.points)
			}
			delete(before, name)
		}
		for name := range before {
			h.by[name] = len(h.points)
		}
	case 1, 2:
		h.note("a turn")
		h.points = append(h.points, h.next(func() { h.mutate("the agent") }))
		h.ended = time.Now()
	default:
		if len(h.points) > 0 {
			h.goBack()
		}
	}
}

func (h *shared) goBack() {
	at := h.r.IntN(len(h.points))
	to := h.points[at]
	_, cp := h.find(string(to))
	want := h.files(cp)
	out, err := h.into(to, true)
	must(h.t, err)
	plan := out.Plan
	before := state(h.t, h.mine)
	if h.countdown = -1; h.r.IntN(2) == 0 {
		h.countdown = h.r.IntN(12)
	}
	turns := h.row().LastSeq
	crashed := h.do(func() { _, err = h.into(to, false) })
	h.countdown = -1
	h.ready()
	h.clean()
	after := state(h.t, h.mine)
	rewound := false
	for _, ev := range h.log(holdfast.EventSessionRewound) {
		rewound = rewound || ev.Seq > turns
	}
	h.note("a rewind to point %d: conflicts %q, crashed %v, done %v", at, plan.Conflicts, crashed, rewound)
	planned := map[string]bool{}
	for _, list := range [][]string{plan.Write, plan.Remove, plan.MakeDirs, plan.RemoveDirs} {
		for _, name := range list {
			planned[name] = rewound
		}
	}
	switch {
	case plan.ConflictCount > 0 && (rewound || !crashed && !holdfast.IsKind(err, holdfast.KindConflict)):
		h.t.Errorf("a rewind with conflicts: %v", err)
	case plan.ConflictCount > 0:
		h.refused++
	case !crashed && err != nil:
		h.t.Errorf("a rewind without conflicts: %v", err)
	case rewound:
		h.done++
		h.arrived(at, plan, want)
	}
	for name, was := range before {
		// A directory gets other times by what happens in it.
		if got := after[name]; !planned[name] && got != was && untimed(got) != untimed(was) {
			h.t.Errorf("%s was touched: %q, before %q", name, got, was)
		}
	}
	for name := range after {
		if before[name] == "" && !planned[name] {
			h.t.Errorf("%s was made", name)
		}
	}
}

// untimed is the description of a directory without its times; "" for anything else.
func untimed(line string) string {
	fields := strings.Fields(line)
	if len(fields) != 10 || !strings.HasPrefix(fields[3], "4") {
		return line
	}
	return strings.Join(fields[:6], " ")
}

// arrived checks what a rewind that is done has changed.
func (h *shared) arrived(at int, plan *holdfast.RewindPlan, want map[string]string) {
	got := describe2(h.t, h.mine)
	for _, name := range plan.Write {
		if stored := content(want["workspace/"+name]); got[name] != stored || stored == "" {
			h.t.Errorf("%s is %q, the checkpoint has %q", name, got[name], stored)
		}
	}
	for _, name := range plan.Remove {
		if _, dir := slices.BinarySearch(plan.MakeDirs, name); got[name] != "" && !dir {
			h.t.Errorf("%s is still there", name)
		}
	}
	for _, name := range append(slices.Clone(plan.Write), plan.Remove...) {
		if since, ok := h.by[name]; ok && since > at {
			h.t.Errorf("the rewind changed %s, which the user had changed", name)
		}
	}
}

// content is the mode and content of a file in a description of describe.
func content(line string) string {
	mode, rest, _ := strings.Cut(line, " ")
	_, text, ok := strings.Cut(rest, ` "`)
	if !ok {
		return ""
	}
	return mode + ` "` + text
}

// describe2 returns the mode and content of the files in a directory.
func describe2(t testing.TB, dir string) map[string]string {
	out := map[string]string{}
	for name, line := range state(t, dir) {
		if _, text, ok := strings.Cut(line, ` "`); ok {
			out[name] = strings.Fields(line)[3] + ` "` + text
		}
	}
	return out
}
