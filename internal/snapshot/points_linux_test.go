package snapshot_test

import (
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// queued adds a turn that ends before it starts.
func (w *world) queued() {
	w.t.Helper()
	id, row := holdfast.TurnID(w.newID()), w.row()
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{
		{Type: holdfast.EventMessageUser, Turn: id, Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "go"}}}},
		{Type: holdfast.EventTurnInterrupted, Turn: id, Data: holdfast.TurnEnded{Number: row.LastTurn + 1}},
	}
	c.Turns = []journal.TurnChange{
		{ID: id, To: holdfast.TurnQueued, Number: row.LastTurn + 1, MessageSeq: row.LastSeq + 1},
		{ID: id, From: holdfast.TurnQueued, To: holdfast.TurnInterrupted, EndSeq: row.LastSeq + 2},
	}
	_, err := w.journal.Commit(w.t.Context(), c)
	must(w.t, err)
}

func (w *world) list(after string, limit int) holdfast.CheckpointPage {
	w.t.Helper()
	page, err := w.branches.List(w.t.Context(), w.id, after, limit)
	must(w.t, err)
	return page
}

// TestEveryEndOfATurnIsListed: those that changed nothing have the files of the checkpoint before, and those that a
// rewind left are marked.
func TestEveryEndOfATurnIsListed(t *testing.T) {
	w := newWorld(t, false)
	talk := w.turn(nil)
	w.box()
	change := w.turn(func() { w.write("workspace/a", "one") })
	idle := w.turn(nil)
	w.queued()
	left := w.turn(nil)
	w.rewind(string(idle), "")
	last := w.turn(func() { w.write("workspace/a", "two") })

	var got []string
	page := w.list("", 0)
	for _, cp := range page.Checkpoints {
		got = append(got, string(cp.ID))
		if cp.Abandoned != (cp.ID == holdfast.CheckpointID(left)) || cp.Session != w.id || cp.CreatedAt.IsZero() || cp.Reason != holdfast.CheckpointTurn {
			t.Errorf("checkpoint %+v", cp)
		}
		found, _ := w.find(string(cp.ID))
		if found != cp {
			t.Errorf("found %+v, listed %+v", found, cp)
		}
	}
	if want := []string{string(last), string(left), string(idle), string(change), string(talk)}; !slices.Equal(got, want) || page.Next != "" {
		t.Errorf("listed %v, want %v; next %q", got, want, page.Next)
	}
	cps := page.Checkpoints
	if cps[1].Workspace != cps[3].Workspace || cps[2].Workspace != cps[3].Workspace || cps[2].Files != cps[3].Files || cps[2].Number != 3 || cps[2].Seq == cps[3].Seq || cps[4].Workspace != "" {
		t.Errorf("checkpoints %+v", cps)
	}
	here, files, err := w.snaps.Here(t.Context(), w.row())
	if err != nil || here != cps[0] || files.ID != here.ID {
		t.Errorf("here %+v, %v", here, err)
	}
	w.turn(nil)
	if here, files, err = w.snaps.Here(t.Context(), w.row()); err != nil || here.Number != 7 || files.ID != cps[0].ID {
		t.Errorf("here %+v with files of %s, %v", here, files.ID, err)
	}
}

// TestListOfAFailedSnapshot: the list shows a turn whose snapshot failed as what Find refuses, without the files of the checkpoint
// before.
func TestListOfAFailedSnapshot(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	var second holdfast.TurnID
	w.withReadOnlyPacks(func() { second = w.turn(func() { w.write("workspace/a", "two") }) })
	third := w.turn(func() { w.write("workspace/a", "three") })
	for _, limit := range []int{0, 1} {
		var list []holdfast.Checkpoint
		for page := w.list("", limit); ; page = w.list(page.Next, limit) {
			if list = append(list, page.Checkpoints...); page.Next == "" {
				break
			}
		}
		if len(list) != 3 {
			t.Fatalf("%d checkpoints: %+v", len(list), list)
		}
		for i, id := range []holdfast.TurnID{third, second, first} {
			if cp := list[i]; cp.ID != holdfast.CheckpointID(id) || cp.Failed != (id == second) || cp.Failed != (cp.Files == 0) || cp.Failed != (cp.Workspace+cp.Home == "") {
				t.Errorf("checkpoint %d: %+v", i, cp)
			}
			_, _, err := w.snaps.Find(t.Context(), w.row(), list[i].ID)
			if failed := holdfast.IsKind(err, holdfast.KindConflict); failed != list[i].Failed || err != nil && !failed {
				t.Errorf("listed %+v, Find: %v", list[i], err)
			}
		}
		if cp := list[1]; cp.Number != 2 || cp.Turn != second || cp.Session != w.id || cp.CreatedAt.IsZero() || cp.Seq == 0 {
			t.Errorf("the failed one: %+v", cp)
		}
	}
}

// TestPagesOfCheckpoints: pages of any size together are the whole list, each checkpoint once and in order.
func TestPagesOfCheckpoints(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "first") })
	for n := range 24 {
		switch n % 6 {
		case 0, 3:
			w.turn(func() { w.write("workspace/a", w.newID()) })
		case 1, 4:
			w.turn(nil)
		case 2:
			w.queued()
			w.queued()
			w.queued()
		case 5:
			w.write("workspace/b", w.newID())
			w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
			if n > 15 {
				w.rewind(string(first), "")
			}
		}
	}
	whole := w.list("", 1000)
	if len(whole.Checkpoints) < 20 || whole.Next != "" {
		t.Fatalf("%d checkpoints, next %q", len(whole.Checkpoints), whole.Next)
	}
	if !slices.IsSortedFunc(whole.Checkpoints, func(a, b holdfast.Checkpoint) int { return int(b.Seq - a.Seq) }) {
		t.Error("the list is not newest first")
	}
	for limit := 1; limit <= len(whole.Checkpoints)+1; limit++ {
		var got []holdfast.Checkpoint
		after := ""
		for pages := 0; ; pages++ {
			page := w.list(after, limit)
			if len(page.Checkpoints) > limit || pages > 200 {
				t.Fatalf("limit %d: %d checkpoints on page %d", limit, len(page.Checkpoints), pages)
			}
			got = append(got, page.Checkpoints...)
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, whole.Checkpoints) {
			t.Errorf("limit %d: %d checkpoints in pages, %d in one", limit, len(got), len(whole.Checkpoints))
		}
	}
}

// TestBadCursors: what is not a cursor of the list is invalid, and so is a limit that no page can have.
func TestBadCursors(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	for _, raw := range []string{
		``, `x`, `{}x`, `{"p":{"Seq":0,"Order":0},"t":3}`, `{"p":{"Seq":0,"Order":0},"t":-1}`, `{"p":{"Seq":-1,"Order":0},"t":1}`,
		`{"p":{"Seq":1,"Order":-1},"t":1}`, `{"t":1,"p":{"Seq":0,"Order":0}}`, `null`,
	} {
		_, err := w.branches.List(t.Context(), w.id, base64.RawURLEncoding.EncodeToString([]byte(raw))+"=", 0)
		wantKind(t, err, holdfast.KindInvalid)
		if raw != "" {
			_, err = w.branches.List(t.Context(), w.id, base64.RawURLEncoding.EncodeToString([]byte(raw)), 0)
			wantKind(t, err, holdfast.KindInvalid)
		}
	}
	for _, limit := range []int{-1, 1001} {
		_, err := w.branches.List(t.Context(), w.id, "", limit)
		wantKind(t, err, holdfast.KindInvalid)
	}
}

// TestUnknownCheckpoints: neither an unknown id, nor that of a turn that has not ended or never began, is a checkpoint.
func TestUnknownCheckpoints(t *testing.T) {
	w := newWorld(t, true)
	w.queued()
	turns, err := w.store.Sessions.Turns(t.Context(), w.id, 0, 10)
	must(t, err)
	running := w.begin()
	for _, id := range []string{w.newID(), string(turns[0].ID), string(running), "x"} {
		_, _, err := w.snaps.Find(t.Context(), w.row(), holdfast.CheckpointID(id))
		wantKind(t, err, holdfast.KindNotFound)
		_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(id)})
		wantKind(t, err, holdfast.KindNotFound)
	}
	_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{Files: "some"})
	wantKind(t, err, holdfast.KindInvalid)
}

// abandoned returns the ids of the stored checkpoints that are abandoned, newest first.
func (w *world) abandoned() (ids []holdfast.CheckpointID) {
	for _, cp := range w.stored() {
		if cp.Abandoned {
			ids = append(ids, cp.ID)
		}
	}
	return ids
}

// TestRewindDoesNotAbandonItsTarget: a rewind to a checkpoint outside of a turn abandons what came after it, not the
// checkpoint itself and not those before it. The files that a resume restores are those of the target, or the present
// ones if the rewind kept them.
func TestRewindDoesNotAbandonItsTarget(t *testing.T) {
	for _, c := range []struct{ files, to string }{{"", "before"}, {"keep", "before"}, {"", "after"}, {"keep", "after"}} {
		w := newWorld(t, true)
		take := func(content string) journal.Checkpoint {
			w.write("workspace/a", content)
			w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
			return w.stored()[0]
		}
		first, before := take("imported"), take("by hand")
		one := w.turn(func() { w.write("workspace/a", "one") })
		after := take("by hand again")
		two := w.turn(func() { w.write("workspace/b", "two") })
		to, want := before, []holdfast.CheckpointID{holdfast.CheckpointID(two), after.ID, holdfast.CheckpointID(one)}
		if c.to == "after" {
			to, want = after, want[:1]
		}
		files := w.files(to)
		if c.files == "keep" {
			files = w.now()
		}
		w.rewind(string(to.ID), c.files)
		if got := w.abandoned(); !slices.Equal(got, want) {
			t.Errorf("%+v: abandoned %v, want %v", c, got, want)
		}
		if list := w.stored(); list[len(list)-1].ID != first.ID {
			t.Errorf("%+v: the first checkpoint is %+v", c, list[len(list)-1])
		}
		var names strings.Builder
		_, err := w.snaps.Diff(t.Context(), w.row(), holdfast.CompareCheckpoints{From: holdfast.CheckpointStart, Format: holdfast.DiffNames}, &names)
		if must(t, err); !strings.HasPrefix(names.String(), "a\n") || strings.Contains(names.String(), "b\n") != (c.files == "keep") {
			t.Errorf("%+v: changed since the first checkpoint: %q", c, names.String())
		}
		must(t, os.RemoveAll(w.at("workspace")))
		w.start()
		newest, err := w.snaps.Newest(t.Context(), w.row())
		must(t, err)
		must(t, w.snaps.Restore(t.Context(), w.row(), newest))
		sameFiles(t, "what a resume restores", w.now(), files)
		w.rewind(string(two), "")
		if got := w.abandoned(); slices.ContainsFunc(append(want, to.ID), func(id holdfast.CheckpointID) bool { return slices.Contains(got, id) }) {
			t.Errorf("%+v: after the way back %v are abandoned", c, got)
		}
	}
}

// TestBranchAfterARewindToItsStart: if turns changed nothing, the target of a rewind has the present files, and is not
// abandoned. The new branch gets a checkpoint of its own all the same, if need be at the end of its first turn.
func TestBranchAfterARewindToItsStart(t *testing.T) {
	for _, files := range []string{"", "keep"} {
		for _, fails := range []bool{false, true} {
			w := newWorld(t, true)
			w.write("workspace/a", "imported")
			w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
			to := w.stored()[0]
			w.turn(nil)
			if w.rest(); fails {
				w.withReadOnlyPacks(func() { w.rewind(string(to.ID), files) })
				settled := w.end(w.begin())
				settled.Idle = true
				must(t, w.snaps.After(t.Context(), settled))
			} else {
				w.rewind(string(to.ID), files)
			}
			_, here, err := w.snaps.Here(t.Context(), w.row())
			newest, nerr := w.snaps.Newest(t.Context(), w.row())
			if err != nil || nerr != nil || here.ID == "" || newest != string(here.ID) || len(w.abandoned()) > 0 {
				t.Errorf("files %q, fails %v: the branch has %+v, %v; a resume restores %q, %v", files, fails, here, err, newest, nerr)
			}
		}
	}
}

// TestStartIsTheFirstCheckpoint: a comparison from the start is one with the first checkpoint of the list, also in a
// directory of the user's own, after a rewind to before turn 1 that kept the files.
func TestStartIsTheFirstCheckpoint(t *testing.T) {
	w := newBorrowed(t)
	w.found()
	before := w.stored()[0]
	w.turn(func() { w.put("w.txt", "one") })
	w.rewind(string(before.ID), "keep")
	list := w.list("", 0).Checkpoints
	var names strings.Builder
	notes, err := w.snaps.Diff(t.Context(), w.row(), holdfast.CompareCheckpoints{From: holdfast.CheckpointStart, Format: holdfast.DiffNames}, &names)
	if first := list[len(list)-1]; err != nil || names.String() != "w.txt\n" || first.ID != before.ID || first.Abandoned {
		t.Errorf("%s: %q, %v; the first checkpoint is %+v", notes, names.String(), err, first)
	}
}
