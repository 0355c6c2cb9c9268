package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

// storeServer answers for a snapshot store.
type storeServer struct {
	mu       sync.Mutex
	held     holdfast.SnapshotStore
	done     holdfast.CollectedSnapshots
	verified holdfast.VerifiedSnapshots
}

func newStoreServer(t *testing.T) (*storeServer, map[string]string) {
	t.Helper()
	s := &storeServer{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t", "XDG_STATE_HOME": t.TempDir()}
}

// set changes what the server answers.
func (s *storeServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *storeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/snapshots":
		answer = s.held
	case "POST /v1/snapshots/collect":
		var req struct {
			DryRun bool `json:"dry_run"`
		}
		_ = json.NewDecoder(r.Body).Decode(&req)
		s.done.DryRun = req.DryRun
		answer = s.done
	case "POST /v1/snapshots/verify":
		answer = s.verified
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = holdfast.KindNotFound.Problem(holdfast.Errorf(holdfast.KindNotFound, "test", "no route %s", r.URL.Path))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// prints runs a command line and compares what it prints on stdout.
func prints(t *testing.T, vars map[string]string, args, want string) (errs string) {
	t.Helper()
	code, out, errs := runCLI(t, vars, "", strings.Fields(args)...)
	if d := cmp.Diff(want, out); code != 0 || d != "" {
		t.Errorf("%s: %d %q\n%s", args, code, errs, d)
	}
	return errs
}

func TestSnapshotList(t *testing.T) {
	s, vars := newStoreServer(t)
	prints(t, vars, "snapshot list", "0 checkpoints in 0 packs (0 B); unused: 0 packs (0 B)\n")
	s.set(func() {
		s.held = holdfast.SnapshotStore{
			Checkpoints: 13, Packs: 5, Bytes: 3 << 20, UnusedPacks: 1, UnusedBytes: 2048,
			Sessions: []holdfast.SessionSnapshots{
				{Session: cpSession, Checkpoints: 12, Packs: 4, Bytes: 2 << 20, Newest: time.Now().Add(-3 * time.Hour)},
				{Session: cpOther, Checkpoints: 1, Packs: 1, Bytes: 10, Newest: time.Now().Add(-50 * time.Hour)},
			},
		}
	})
	prints(t, vars, "snapshot ls", `SESSION   CHECKPOINTS  PACKS  SIZE     NEWEST
099a8057  12           4      2.0 MiB  3 h
8a9d0e1f  1            1      10 B     2 days
13 checkpoints in 5 packs (3.0 MiB); unused: 1 pack (2.0 KiB)
`)
	code, out, errs := runCLI(t, vars, "", "snapshot", "list", "--json")
	var held holdfast.SnapshotStore
	if err := json.Unmarshal([]byte(out), &held); err != nil || code != 0 || len(held.Sessions) != 2 || held.UnusedBytes != 2048 {
		t.Errorf("%d %q %q %v", code, out, errs, err)
	}
}

func TestSnapshotVerify(t *testing.T) {
	s, vars := newStoreServer(t)
	s.set(func() { s.verified = holdfast.VerifiedSnapshots{Checkpoints: 13, Packs: 4, Bytes: 3 << 20} })
	prints(t, vars, "snapshot verify", "verified 13 checkpoints in 4 packs (3.0 MiB); everything is whole\n")

	const id = "01890a5d-0003-7000-8000-cafecafecafe"
	pack := strings.Repeat("0a", 32)
	s.set(func() {
		s.verified.Faults = []holdfast.ReportedPack{{ID: pack, Reason: "the file is missing", Checkpoints: []holdfast.CheckpointID{id}}}
	})
	code, out, errs := runCLI(t, vars, "", "snapshot", "verify")
	fault := "pack " + pack + ", listed by 1 checkpoint: the file is missing\n"
	if code != holdfast.KindInternal.ExitCode() || out != fault || !strings.Contains(errs, "cannot be restored completely: 0 of 13; packs that are missing or damaged: 1") ||
		!strings.Contains(errs, "hint: every checkpoint can be restored") {
		t.Errorf("a fault that harms nothing: %d %q %q", code, out, errs)
	}

	s.set(func() {
		s.verified.Damaged = []holdfast.ReportedCheckpoint{
			{ID: id, Session: cpSession, Paths: []string{"src/main.go", "~/notes\x1b[31m\n"}},
			{ID: id, Session: cpOther},
			{ID: id, Session: cpOther, Paths: strings.Fields(strings.Repeat("a ", 20))},
		}
	})
	code, out, errs = runCLI(t, vars, "", "snapshot", "verify")
	want := "checkpoint " + id + " of session " + cpSession + " has lost:\n  src/main.go\n  ~/notes\\u001b[31m\\n\n" +
		"checkpoint " + id + " of session " + cpOther + " has lost:\n  a part of it that no path names\n" +
		"checkpoint " + id + " of session " + cpOther + " has lost:\n" + strings.Repeat("  a\n", 20) + "  there may be more\n" + fault
	if d := cmp.Diff(want, out); d != "" {
		t.Error(d)
	}
	if code != holdfast.KindInternal.ExitCode() || !strings.Contains(errs, "cannot be restored completely: 3 of 13;") || !strings.Contains(errs, "hint: the other checkpoints can be restored: holdfast session checkpoints "+cpSession) {
		t.Errorf("damage: %d %q", code, errs)
	}
	code, out, errs = runCLI(t, vars, "", "snapshot", "verify", "--json")
	var rep holdfast.VerifiedSnapshots
	if err := json.Unmarshal([]byte(out), &rep); err != nil || code != 1 || len(rep.Damaged) != 3 || len(rep.Faults) != 1 {
		t.Errorf("as JSON: %d %q %q %v", code, out, errs, err)
	}
}

func TestSnapshotGC(t *testing.T) {
	s, vars := newStoreServer(t)
	prints(t, vars, "snapshot gc", "nothing to remove\n")
	const id = "01890a5d-0003-7000-8000-cafecafecafe"
	a, b := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	s.set(func() {
		s.done = holdfast.CollectedSnapshots{
			Checkpoints: []holdfast.ReportedCheckpoint{{ID: id, Session: cpSession, Reason: "age"}, {ID: id, Session: cpSession, Reason: "new"}},
			Removed:     []holdfast.ReportedPack{{ID: a, Bytes: 2048, Reason: "unused"}, {ID: a, Reason: "orphan"}}, RemovedBytes: 2048,
			Marked: []holdfast.ReportedPack{{ID: b, Bytes: 10, Reason: "merged"}}, MarkedBytes: 10,
			Faults: []holdfast.ReportedPack{{ID: b, Reason: "the file is missing"}},
		}
	})
	errs := prints(t, vars, "snapshot gc", `WHAT        ID                                    SIZE     DONE             REASON
checkpoint  `+id+`  -        removed          older than snapshots.max_age, session `+cpSession+`
checkpoint  `+id+`  -        removed          new, session `+cpSession+`
pack        0a0a0a0a0a0a0a0a                      2.0 KiB  removed          no checkpoint needs it
pack        0a0a0a0a0a0a0a0a                      -        removed          no checkpoint was stored with it
pack        0b0b0b0b0b0b0b0b                      10 B     goes in an hour  other packs replace it
removed: 2 checkpoints, 2 packs (2.0 KiB); goes in an hour: 1 pack (10 B)
`)
	if !strings.Contains(errs, "pack "+b+" cannot be used: the file is missing; holdfast snapshot verify says what is lost") {
		t.Errorf("%q", errs)
	}
	prints(t, vars, "snapshot gc --dry-run", `WHAT        ID                                    SIZE     DONE                        REASON
checkpoint  `+id+`  -        would remove                older than snapshots.max_age, session `+cpSession+`
checkpoint  `+id+`  -        would remove                new, session `+cpSession+`
pack        0a0a0a0a0a0a0a0a                      2.0 KiB  would remove                no checkpoint needs it
pack        0a0a0a0a0a0a0a0a                      -        would remove                no checkpoint was stored with it
pack        0b0b0b0b0b0b0b0b                      10 B     would remove an hour later  other packs replace it
would remove: 2 checkpoints, 2 packs (2.0 KiB); would remove an hour later: 1 pack (10 B)
`)
	code, out, errs := runCLI(t, vars, "", "snapshot", "gc", "--dry-run", "--json")
	var done holdfast.CollectedSnapshots
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != 0 || !done.DryRun || len(done.Removed) != 2 {
		t.Errorf("%d %q %q %v", code, out, errs, err)
	}
}
