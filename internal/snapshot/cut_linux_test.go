package snapshot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// cutCase is damage that a power cut leaves, and what comes back.
type cutCase struct {
	name   string
	damage func(w *world)
	// call lets a call run after the checkpoint. risk is false if the guard names no files.
	call, risk bool
	// whole is true if all files are as in the checkpoint afterwards; otherwise back are those that came back, and left
	// those that are named and stay.
	whole      bool
	back, left []string
}

var older, newer = time.Unix(1_000_000_000, 0), time.Unix(4_000_000_000, 0)

// farFuture is after all deliveries are due.
var farFuture = time.Unix(8_000_000_000, 0)

// set writes a file with a time.
func (w *world) set(name, text string, at time.Time) {
	w.t.Helper()
	w.write(name, text)
	must(w.t, os.Chtimes(w.at(name), at, at))
}

var cutCases = []cutCase{
	{name: "nothing lost", damage: func(*world) {}, risk: true, whole: true},
	{name: "missing", damage: func(w *world) { must(w.t, os.Remove(w.at("workspace/a"))) }, risk: true, whole: true, back: []string{"a"}},
	{name: "empty", damage: func(w *world) { w.write("workspace/a", "") }, risk: true, whole: true, back: []string{"a"}},
	{name: "newer", damage: func(w *world) { w.set("workspace/a", "newer", newer) }, risk: true, whole: true, back: []string{"a"}},
	{name: "added", damage: func(w *world) { w.write("workspace/new", "x") }, risk: true, whole: true, back: []string{"new"}},
	{name: "no risk", damage: func(w *world) { must(w.t, os.Remove(w.at("workspace/a"))) }, left: []string{}},
	{name: "missing after a call", damage: func(w *world) { must(w.t, os.Remove(w.at("workspace/a"))) }, call: true, risk: true, back: []string{"a"}},
	{name: "empty after a call", damage: func(w *world) { w.set("workspace/a", "", newer) }, call: true, risk: true, back: []string{"a"}},
	{name: "older after a call", damage: func(w *world) { w.set("workspace/a", "older", older) }, call: true, risk: true, back: []string{"a"}},
	{name: "newer after a call", damage: func(w *world) { w.set("workspace/a", "newer", newer) }, call: true, risk: true, left: []string{"a"}},
	{
		name: "some of each after a call", call: true, risk: true, back: []string{"a", "d/b", "~/h"}, left: []string{"c", "new"},
		damage: func(w *world) {
			must(w.t, os.Remove(w.at("workspace/a")))
			w.set("workspace/d/b", "", newer)
			w.set("workspace/c", "newer", newer)
			w.set("workspace/new", "x", newer)
			w.set("home/h", "older", older)
		},
	},
}

// TestPowerCut: after a power cut the present files are kept first; then all files come back, or if a call ran after the
// checkpoint only those that are missing, empty or older. A notice names the files (HZ-21).
func TestPowerCut(t *testing.T) {
	for _, c := range cutCases {
		t.Run(c.name, func(t *testing.T) { powerCut(t, c) })
	}
}

func powerCut(t *testing.T, c cutCase) {
	w := newWorld(t, true)
	w.turn(func() {
		for _, name := range []string{"workspace/a", "workspace/d/b", "workspace/c", "home/h"} {
			w.write(name, "stored")
		}
	})
	stored := w.now()
	if c.call {
		ch := journal.NewChange(w.id)
		ch.Events = []journal.Draft{{Type: holdfast.EventToolStarted, Data: holdfast.ToolStarted{ToolUseID: "x"}}}
		_, err := w.journal.Commit(t.Context(), ch)
		must(t, err)
	}
	if c.risk {
		w.cut = time.Now()
	}
	c.damage(w)
	present := w.now()
	w.later = time.Hour
	w.start()
	w.ready()
	after := w.now()
	if list := w.stored(); c.name != "nothing lost" {
		want := holdfast.CheckpointKept
		if !c.risk {
			want = holdfast.CheckpointLate
		}
		if list[0].Reason != want {
			t.Errorf("checkpoints %+v", list)
		}
		sameFiles(t, "the present that was kept", w.files(list[0]), present)
	}
	wantNotice(t, w, c)
	if c.whole {
		sameFiles(t, "the files", after, stored)
	}
	for _, p := range c.left {
		p = onDisk(p)
		if after[p] != present[p] {
			t.Errorf("%s was left as %q, and is %q", p, present[p], after[p])
		}
	}
	for _, p := range c.back {
		if p = onDisk(p); after[p] != stored[p] {
			t.Errorf("%s came back as %q, want %q", p, after[p], stored[p])
		}
	}
	// The cut is looked at again by each server until the files are not at risk any more.
	w.start()
	w.ready()
	sameFiles(t, "the files after another start", w.now(), after)
}

func onDisk(shown string) string {
	if home, ok := strings.CutPrefix(shown, "~/"); ok {
		return "home/" + home
	}
	return "workspace/" + shown
}

// wantNotice compares the notice of a case.
func wantNotice(t *testing.T, w *world, c cutCase) {
	t.Helper()
	events := w.log(holdfast.EventNotice)
	if len(c.back)+len(c.left) == 0 {
		if len(events) > 0 {
			t.Errorf("notices %s", events[0].Data)
		}
		return
	}
	if len(events) != 1 {
		t.Fatalf("%d notices", len(events))
	}
	var n holdfast.Notice
	must(t, events[0].Decode(&n))
	if n.Code != holdfast.NoticeFilesCompared || n.Level != "warning" {
		t.Errorf("notice %+v", n)
	}
	back, left, _ := strings.Cut(n.Text, "Left as they are")
	for _, p := range c.back {
		if !strings.Contains(back, holdfast.Quote(p)) {
			t.Errorf("the notice does not say that %s came back: %s", p, n.Text)
		}
	}
	for _, p := range c.left {
		if !strings.Contains(left, holdfast.Quote(p)) {
			t.Errorf("the notice does not say that %s was left: %s", p, n.Text)
		}
	}
}

// TestPowerCutBeforeLaterWork: files that people changed since are not replaced.
func TestPowerCutBeforeLaterWork(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "stored") })
	w.cut = time.Now()
	w.later = time.Hour
	w.start()
	w.ready()
	w.turn(func() { w.write("workspace/a", "later") })
	want := w.now()
	w.start()
	w.ready()
	sameFiles(t, "the files", w.now(), want)
	if n := len(w.log(holdfast.EventNotice)); n != 0 {
		t.Errorf("%d notices", n)
	}
}

// afterACall makes files of which a call changed some after the newest checkpoint.
func afterACall(t *testing.T) *world {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "stored") })
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{{Type: holdfast.EventToolStarted, Data: holdfast.ToolStarted{ToolUseID: "x"}}}
	_, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	w.write("workspace/n", "new")
	return w
}

// cutPower removes a file as a power cut would, some hours later, and starts the next server.
func (w *world) cutPower(lost string, hours time.Duration) {
	must(w.t, os.Remove(w.at(lost)))
	w.cut = time.Now().Add(hours*time.Hour - time.Minute)
	w.later = hours * time.Hour
	w.start()
}

// backWith checks the contents of the files of afterACall.
func (w *world) backWith(a, n string) {
	w.t.Helper()
	for name, want := range map[string]string{"workspace/a": a, "workspace/n": n} {
		if got, err := os.ReadFile(w.at(name)); err != nil || string(got) != want {
			w.t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

// TestTwoPowerCuts: the second cut comes before what the first one took is back, and takes what the first one left. All of
// it comes back.
func TestTwoPowerCuts(t *testing.T) {
	w := afterACall(t)
	w.cutPower("workspace/a", 1)
	w.crash = "committed"
	row := w.row()
	if !w.do(func() { w.whole(w.snaps.Ready(t.Context(), row)) }) {
		t.Fatal("the server did not end")
	}
	w.cutPower("workspace/n", 2)
	w.ready()
	w.backWith("stored", "new")
}

// TestPowerCutAfterALongRewind: the checkpoint to which the session was rewound is compared with the files, although the
// rewind left more checkpoints behind than a page has.
func TestPowerCutAfterALongRewind(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "stored") })
	for i := range coded.PageSize + 1 {
		w.turn(func() { w.write("workspace/n", fmt.Sprint(i)) })
	}
	w.rewind(string(first), "")
	want := w.now()
	w.cutPower("workspace/a", 1)
	w.ready()
	sameFiles(t, "after the power cut", w.now(), want)
	if n := len(w.log(holdfast.EventNotice)); n != 1 {
		t.Errorf("%d notices", n)
	}
}

// fullDisk has no room for packs while full is set.
type fullDisk struct {
	pack.OSDisk
	full bool
}

func (d *fullDisk) Create(path string) (pack.DiskFile, error) {
	if d.full {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
	}
	return d.OSDisk.Create(path)
}

// TestPowerCutAndNoRoom: while the present files cannot be stored, nothing uses them. Then what was lost comes back.
func TestPowerCutAndNoRoom(t *testing.T) {
	w := afterACall(t)
	disk := &fullDisk{full: true}
	packs, err := pack.Open(filepath.Join(w.base, "packs"), pack.Keys{ID: [32]byte{1}}, pack.Config{Disk: disk})
	must(t, err)
	w.packs = packs
	w.cutPower("workspace/a", 1)
	for range 2 {
		wantKind(t, w.snaps.Ready(t.Context(), w.row()), holdfast.KindUnavailable)
	}
	disk.full = false
	w.ready()
	w.backWith("stored", "new")
}

// TestTurnEndsBeforeTheComparison: the turn that the cut interrupted ends without using the files. Its snapshot has what came
// back.
func TestTurnEndsBeforeTheComparison(t *testing.T) {
	w := afterACall(t)
	turn := w.begin()
	w.cutPower("workspace/a", 1)
	must(t, w.snaps.After(t.Context(), w.end(turn)))
	w.backWith("stored", "new")
}

// TestPowerCutTakesContentAlone: a file has the length and the time that it had, but other bytes. What a call did to it later,
// such as a change of its mode, stays.
func TestPowerCutTakesContentAlone(t *testing.T) {
	w := afterACall(t)
	info, err := os.Stat(w.at("workspace/a"))
	must(t, err)
	w.write("workspace/b", "stored")
	w.turn(nil)
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{{Type: holdfast.EventToolStarted, Data: holdfast.ToolStarted{ToolUseID: "y"}}}
	_, err = w.journal.Commit(t.Context(), c)
	must(t, err)
	must(t, os.Chmod(w.at("workspace/b"), 0o600))
	w.write("workspace/a", "\x00\x00\x00\x00\x00\x00")
	must(t, os.Chtimes(w.at("workspace/a"), info.ModTime(), info.ModTime()))
	w.write("workspace/lost", "x")
	w.cutPower("workspace/lost", 1)
	w.ready()
	w.backWith("stored", "new")
	if info, err := os.Stat(w.at("workspace/b")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of b: %v, %v", info, err)
	}
}
