package httpapi

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestFilesOfACheckpoint: with at, the routes of files read those of a checkpoint.
func TestFilesOfACheckpoint(t *testing.T) {
	f, srv := start(t, nil)
	c, ctx := newClient(t, srv), t.Context()
	id := withTurns(t, f, 2)
	at := holdfast.CheckpointID(f.turns[id][0].ID)
	for _, upper := range []bool{false, true} {
		asked := at
		if upper {
			asked = holdfast.CheckpointID(strings.ToUpper(string(at)))
		}
		r, err := c.ReadFileAt(ctx, id, asked, "a.txt")
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(data) != "stored a.txt" || !reflect.DeepEqual(f.last, []any{at, "a.txt"}) {
			t.Errorf("%q %v, asked %v", data, err, f.last)
		}
	}
	for name, want := range map[string]string{"": "in .", "dir": "in dir", "~/x": "in ~/x"} {
		if list, err := c.ListFilesAt(ctx, id, at, name); err != nil || len(list.Entries) != 1 || list.Entries[0].Path != want {
			t.Errorf("%q: %+v %v", name, list, err)
		}
	}
	if _, err := c.ReadFileAt(ctx, id, at, "dir"); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := c.ReadFileAt(ctx, id, at, "secret"); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a hidden file: %v", err)
	}
	if _, err := c.ReadFileAt(ctx, id, holdfast.CheckpointID(newID()), "a"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("of no checkpoint: %v", err)
	}
	for _, bad := range []holdfast.CheckpointID{"3", "start", "../x"} {
		_, err := c.ListFilesAt(ctx, id, bad, "")
		_, rerr := c.ReadFileAt(ctx, id, bad, "a")
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !holdfast.IsKind(rerr, holdfast.KindInvalid) {
			t.Errorf("at %s: %v, %v", bad, err, rerr)
		}
	}

	req := holdfast.RestoreFiles{Path: "dir", At: at}
	if sum, kept, err := c.RestoreFiles(ctx, id, req); err != nil || sum.Files != 1 || kept != at || f.last != req {
		t.Errorf("%+v %v, asked %v", sum, err, f.last)
	}
	if _, _, err := c.RestoreFiles(ctx, id, holdfast.RestoreFiles{Path: "dir", At: "3"}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("at 3: %v", err)
	}
	if _, _, err := c.RestoreFiles(ctx, id, holdfast.RestoreFiles{Path: "dir", At: holdfast.CheckpointID(newID())}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("of no checkpoint: %v", err)
	}
}

// TestDiffOfCheckpoints: git makes the diff of a session that started from git, and the server every other one.
func TestDiffOfCheckpoints(t *testing.T) {
	f, srv := start(t, nil)
	c, ctx := newClient(t, srv), t.Context()
	id := withTurns(t, f, 2)
	a, b := holdfast.CheckpointID(f.turns[id][0].ID), holdfast.CheckpointID(f.turns[id][1].ID)
	first := holdfast.CheckpointStart
	diff := func(of holdfast.CompareCheckpoints, asked any, out string) {
		t.Helper()
		var got bytes.Buffer
		if _, err := c.DiffCheckpoints(ctx, id, of, &got); err != nil || got.String() != out || f.last != asked {
			t.Errorf("%+v: %q %v, asked %+v", of, got.String(), err, f.last)
		}
	}
	upper := holdfast.CheckpointID(strings.ToUpper(string(a)))
	diff(holdfast.CompareCheckpoints{From: upper, To: b, Format: holdfast.DiffStat, Home: true}, holdfast.CompareCheckpoints{From: a, To: b, Format: holdfast.DiffStat, Home: true}, "+stored\n")
	diff(holdfast.CompareCheckpoints{From: first}, holdfast.CompareCheckpoints{From: first}, "+stored\n")
	diff(holdfast.CompareCheckpoints{To: a}, holdfast.CompareCheckpoints{To: a}, "+stored\n")
	diff(holdfast.CompareCheckpoints{}, holdfast.CompareCheckpoints{From: first}, "+stored\n")
	if notes, err := c.Diff(ctx, id, "", io.Discard); err != nil || notes != "compared one\nand two" {
		t.Errorf("%q %v", notes, err)
	}
	f.store.mu.Lock()
	f.store.rows[id].Source = &holdfast.Source{Complete: true, Start: strings.Repeat("0a", 20)}
	f.store.mu.Unlock()
	diff(holdfast.CompareCheckpoints{Format: holdfast.DiffPatch}, "patch", "+one\n")
	diff(holdfast.CompareCheckpoints{From: a}, holdfast.CompareCheckpoints{From: a}, "+stored\n")
	for _, of := range []holdfast.CompareCheckpoints{{From: "3"}, {To: "3"}, {To: first}, {From: a, Format: "colour"}} {
		if _, err := c.DiffCheckpoints(ctx, id, of, io.Discard); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", of, err)
		}
	}
	if _, err := c.Diff(ctx, holdfast.SessionID(newID()), "", io.Discard); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("of no session: %v", err)
	}
}
