package torture

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestSnapshotPlanHitsEachPointTwice: the smallest run that must prove something tries each point twice.
func TestSnapshotPlanHitsEachPointTwice(t *testing.T) {
	tries := map[string]int{}
	for _, f := range planSnapshots(enough) {
		if f.kind != KillServer {
			t.Errorf("%+v", f)
		}
		tries[f.point]++
	}
	r := Result{Points: tries}
	if got := r.snapshotShortfalls(enough); len(got) != 0 || tries[""] != 7 {
		t.Errorf("%v: %q", tries, got)
	}
	tries["renamed"] = 1
	if got := r.snapshotShortfalls(enough); len(got) != 1 || len(r.snapshotShortfalls(enough-1)) != 0 {
		t.Errorf("a point hit once gives %q", got)
	}
	if got := r.snapshotShortfalls(200); len(got) != len(SnapshotPoints) {
		t.Errorf("a long run that hit points only twice gives %q", got)
	}
}

// TestGoalOfACheckpoint: a checkpoint must hold what its turn printed, what the client was told, or what the
// files were at its time; nothing is known of one that was taken while a killed command changed files.
func TestGoalOfACheckpoint(t *testing.T) {
	f := newFiles(0)
	w := &worker{files: f}
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	f.printed[turnA] = "a"
	f.acked = []goal{{id: "kept", tree: "k", turn: turnA}}
	f.spans = []span{
		{from: at(0), trees: []string{"", "a"}},
		{from: at(10), trees: []string{"a", "b"}},
		{from: at(20), trees: []string{"b", "c"}, any: true},
	}
	for _, c := range []struct {
		id     holdfast.CheckpointID
		reason holdfast.CheckpointReason
		from   int
		want   string
	}{
		{holdfast.CheckpointID(turnA), holdfast.CheckpointTurn, 25, "a map[]"},
		{"kept", holdfast.CheckpointKept, 25, "k map[]"},
		{"late", holdfast.CheckpointLate, 11, " map[a:true b:true]"},
		{"early", holdfast.CheckpointLate, 9, " map[:true a:true b:true]"},
		{"any", holdfast.CheckpointLate, 21, " map[]"},
	} {
		g := w.goal(holdfast.Checkpoint{ID: c.id, Reason: c.reason, Turn: turnA, CreatedAt: at(c.from)}, at(c.from+2))
		if got := fmt.Sprintf("%s %v", g.tree, g.among); got != c.want || g.turn != turnA {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}

// TestFuzzyFilesMustBeThoseOfProcesses: a snapshot may be fuzzy only in a session with a process that
// outlives its turn, and only in what that process writes.
func TestFuzzyFilesMustBeThoseOfProcesses(t *testing.T) {
	for _, c := range []struct {
		n     int
		taken holdfast.SnapshotTaken
		want  string
	}{
		{0, holdfast.SnapshotTaken{}, ""},
		{2, holdfast.SnapshotTaken{Fuzzy: []string{"bg/tick"}}, ""},
		{0, holdfast.SnapshotTaken{Fuzzy: []string{"bg/tick"}}, "is fuzzy"},
		{2, holdfast.SnapshotTaken{Fuzzy: []string{"f/1"}}, "is fuzzy"},
		{0, holdfast.SnapshotTaken{Fuzzy: []string{"f/1"}, Reason: holdfast.CheckpointLate}, ""},
		{0, holdfast.SnapshotTaken{Mismatched: []string{"f/1"}}, "differ"},
	} {
		w := &worker{files: newFiles(c.n)}
		w.count(c.taken)
		if got := strings.Join(w.files.faults, "\n"); got != "" && c.want == "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.taken, got, c.want)
		}
	}
}

// TestFailedSnapshotsAreFound: only the failure that a removed workspace causes is expected.
func TestFailedSnapshotsAreFound(t *testing.T) {
	for kind, want := range map[holdfast.Kind]int{holdfast.KindConflict: 0, holdfast.KindUnavailable: 1} {
		w := &worker{files: newFiles(0)}
		data, err := json.Marshal(holdfast.Failure{Kind: kind, Message: "the workspace of session s is gone"})
		if err != nil {
			t.Fatal(err)
		}
		w.failed(holdfast.Event{Data: data})
		if len(w.files.faults) != want || w.files.counts.Failed != 1 {
			t.Errorf("%s: %q", kind, w.files.faults)
		}
	}
}

func TestTheHashThatATurnPrintedIsFound(t *testing.T) {
	f, tree := newFiles(0), strings.Repeat("0a", 32)
	for _, content := range []string{"nothing", "done\ntree=" + tree + "\n", "tree=short"} {
		data, err := json.Marshal(holdfast.ToolFinished{Content: content})
		if err != nil {
			t.Fatal(err)
		}
		f.hear(holdfast.Event{Type: holdfast.EventToolFinished, Turn: turnA, Data: data})
	}
	if f.printed[turnA] != tree {
		t.Errorf("printed %q", f.printed)
	}
}
