package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

const (
	cpSession = "01890a5d-ac96-774b-bcce-b302099a8057"
	cpOther   = "01890a5d-e0b2-7d3e-8f40-6c7b8a9d0e1f"
)

// pastServer answers for a session with four checkpoints, in pages of at most three, and stores what it
// is asked to do.
type pastServer struct {
	mu   sync.Mutex
	list []holdfast.Checkpoint
	last any
	key  string
	plan holdfast.RewindPlan // what a rewind would change
}

func newPastServer(t *testing.T) (*pastServer, map[string]string) {
	t.Helper()
	p := &pastServer{}
	for i, one := range []holdfast.Checkpoint{
		{ID: "01890a5d-0005-7000-8000-aaaaaaaaaaaa", Reason: holdfast.CheckpointKept, Number: 12, Files: 5, Bytes: 3 << 20},
		{ID: "01890a5d-0004-7000-8000-00000000cafe", Reason: holdfast.CheckpointTurn, Number: 3, Files: 4, Bytes: 2048, Fuzzy: true, Abandoned: true, Held: true},
		{ID: "01890a5d-0003-7000-8000-cafecafecafe", Reason: holdfast.CheckpointDirect, Number: 2, Files: 3, Bytes: 10},
		{ID: "01890a5d-0002-7000-8000-bbbbbbbbbbbb", Reason: holdfast.CheckpointTurn, Number: 2},
	} {
		one.Session, one.CreatedAt = cpSession, time.Now().Add(-time.Duration(i*i*i)*6*time.Hour)
		p.list = append(p.list, one)
	}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return p, map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t", "XDG_STATE_HOME": t.TempDir()}
}

func (p *pastServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch rest, _ := strings.CutPrefix(r.URL.Path, "/v1/sessions/"+cpSession); rest {
	case "/v1/sessions":
		answer = holdfast.SessionPage{Sessions: []holdfast.Session{{ID: cpSession, Title: "My title"}}}
	case "/checkpoints":
		page := holdfast.CheckpointPage{Checkpoints: p.list[:3], Next: "more"}
		if r.URL.Query().Get("cursor") == "more" {
			page = holdfast.CheckpointPage{Checkpoints: p.list[3:]}
		}
		if r.URL.Query().Get("limit") == "1" {
			page = holdfast.CheckpointPage{Checkpoints: p.list[:1], Next: "more"}
		}
		answer = page
	case "/turns":
		turns := []holdfast.Turn{}
		if r.URL.Query().Get("after") == "2" {
			turns = append(turns, holdfast.Turn{ID: holdfast.TurnID(p.list[1].ID), Number: 3})
		}
		answer = map[string]any{"turns": turns}
	case "/checkpoints/" + string(p.list[1].ID) + "/hold":
		p.last = r.Method
		cp := p.list[1]
		cp.Held = r.Method == http.MethodPost
		answer = map[string]any{"checkpoint": cp}
	case "/rewind":
		var req holdfast.RewindSession
		_ = json.NewDecoder(r.Body).Decode(&req)
		p.last = req
		files := holdfast.FilesRestored
		if req.Files == "keep" {
			files = holdfast.FilesKept
		}
		done := holdfast.RewoundSession{
			Session: holdfast.Session{ID: cpSession}, Rewound: holdfast.Rewound{Checkpoint: req.To, Seq: 30, Kept: p.list[0].ID, Files: files},
		}
		if req.DryRun {
			done.Plan = &p.plan
		}
		answer = done
	case "/fork":
		var req holdfast.ForkSession
		_ = json.NewDecoder(r.Body).Decode(&req)
		p.last, p.key = req, r.Header.Get("Idempotency-Key")
		w.WriteHeader(http.StatusCreated)
		answer = map[string]any{"session": holdfast.Session{ID: cpOther, Title: req.Title}}
	default:
		w.WriteHeader(http.StatusNotFound)
		answer = holdfast.KindNotFound.Problem(holdfast.Errorf(holdfast.KindNotFound, "test", "no route %s", r.URL.Path))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func TestSessionCheckpoints(t *testing.T) {
	p, vars := newPastServer(t)
	p.list = append(p.list, holdfast.Checkpoint{
		ID: "01890a5d-0001-7000-8000-dadadadadada", Reason: holdfast.CheckpointTurn, Number: 1, CreatedAt: p.list[3].CreatedAt, Failed: true, Abandoned: true,
	})
	code, out, errs := runCLI(t, vars, "", "session", "checkpoints", cpSession, "--limit", "0")
	want := `TURN  ID        REASON  AGE     FILES  SIZE     
#12   aaaaaaaa  kept    0 s     5      3.0 MiB  
#3    0000cafe  turn    6 h     4      2.0 KiB  held, fuzzy, abandoned
#2    cafecafe  direct  2 days  3      10 B     
#2    bbbbbbbb  turn    6 days  0      0 B      
#1    dadadada  turn    6 days  -      -        abandoned, failed
`
	if d := cmp.Diff(want, out); code != 0 || errs != "" || d != "" {
		t.Errorf("%d %q\n%s", code, errs, d)
	}
	code, out, errs = runCLI(t, vars, "", "session", "checkpoints", cpSession, "-n", "1")
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(errs, "--cursor more goes on") {
		t.Errorf("one: %d %q %q", code, out, errs)
	}
	code, out, errs = runCLI(t, vars, "", "session", "checkpoints", cpSession, "--cursor", "more", "--json")
	var page holdfast.CheckpointPage
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Checkpoints) != 2 || page.Next != "" {
		t.Errorf("the rest: %d %q %q %v", code, out, errs, err)
	}
}

func TestSessionHold(t *testing.T) {
	p, vars := newPastServer(t)
	three := string(p.list[1].ID)
	for _, c := range []struct{ verb, method, says string }{
		{"hold", http.MethodPost, "is held; to release it: holdfast session release"},
		{"release", http.MethodDelete, "is not held; to hold it: holdfast session hold"},
	} {
		for _, name := range []string{three, "#3", "0000cafe"} {
			code, out, errs := runCLI(t, vars, "", "session", c.verb, cpSession, name)
			if want := "checkpoint " + three + " " + c.says + " " + cpSession + " " + three + "\n"; code != 0 || out != want || errs != "" || p.last != c.method {
				t.Errorf("%s %s: %d %q %q, asked %v", c.verb, name, code, out, errs, p.last)
			}
		}
		code, out, errs := runCLI(t, vars, "", "session", c.verb, cpSession, "3", "--json")
		var done struct{ Checkpoint holdfast.Checkpoint }
		if err := json.Unmarshal([]byte(out), &done); err != nil || code != 0 || string(done.Checkpoint.ID) != three || done.Checkpoint.Held != (c.verb == "hold") {
			t.Errorf("%s --json: %d %q %q %v", c.verb, code, out, errs, err)
		}
		p.last = nil
		if code, out, errs = runCLI(t, vars, "", "session", c.verb, cpSession, "9"); code != holdfast.KindNotFound.ExitCode() || out != "" || !strings.Contains(errs, "hint: ") || p.last != nil {
			t.Errorf("%s of no turn: %d %q %q, asked %v", c.verb, code, out, errs, p.last)
		}
	}
}

// TestComparisonOf: the words after /diff name a format and up to two checkpoints, as session diff takes them.
func TestComparisonOf(t *testing.T) {
	p, vars := newPastServer(t)
	c, err := client.New(client.Config{URL: vars["HOLDFAST_URL"], Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	three, direct := p.list[1].ID, p.list[2].ID
	for words, want := range map[string]struct {
		of   holdfast.CompareCheckpoints
		says string
	}{
		"":             {holdfast.CompareCheckpoints{Format: holdfast.DiffPatch}, ""},
		"stat":         {holdfast.CompareCheckpoints{Format: holdfast.DiffStat}, " --stat"},
		"#3":           {holdfast.CompareCheckpoints{Format: holdfast.DiffPatch, From: three}, " --from " + string(three)},
		"cafecafe 3":   {holdfast.CompareCheckpoints{Format: holdfast.DiffPatch, From: direct, To: three}, " --from " + string(direct) + " --to " + string(three)},
		"stat start 3": {holdfast.CompareCheckpoints{Format: holdfast.DiffStat, From: holdfast.CheckpointStart, To: three}, " --stat --from start --to " + string(three)},
	} {
		of, command, err := comparisonOf(t.Context(), c, cpSession, strings.Fields(words))
		if err != nil || of != want.of || command != "holdfast session diff "+cpSession+want.says {
			t.Errorf("%q: %+v %q %v", words, of, command, err)
		}
	}
	for words, kind := range map[string]holdfast.Kind{
		"1 2 3": holdfast.KindInvalid, "stat 1 2 3": holdfast.KindInvalid, "9": holdfast.KindNotFound, "3 9": holdfast.KindNotFound,
		"3 stat": holdfast.KindInvalid, "cafe": holdfast.KindInvalid,
	} {
		if of, command, err := comparisonOf(t.Context(), c, cpSession, strings.Fields(words)); !holdfast.IsKind(err, kind) || holdfast.HintOf(err) == "" || command != "" {
			t.Errorf("%q: %+v %q %v", words, of, command, err)
		}
	}
}

// FH-37.
func TestSessionRewind(t *testing.T) {
	p, vars := newPastServer(t)
	three, direct := p.list[1].ID, p.list[2].ID
	p.list = append(p.list,
		holdfast.Checkpoint{ID: "01890a5d-0001-7000-8000-a0a0a0a0a0a0", Reason: holdfast.CheckpointFound},
		holdfast.Checkpoint{ID: "01890a5d-0000-7000-8000-b0b0b0b0b0b0", Reason: holdfast.CheckpointDirect},
		holdfast.Checkpoint{ID: "01890a5d-0000-7000-8000-0b0b0b0b0b0b", Reason: holdfast.CheckpointTurn, Failed: true})
	for name, want := range map[string]holdfast.CheckpointID{
		string(three): three, strings.ToUpper(string(three)): three, "3": three, "#3": three,
		"cafecafe": direct, "01890a5d-0003": direct, "BBBBBBBB": p.list[3].ID,
		"0": p.list[4].ID, "#0": p.list[4].ID, "start": p.list[5].ID,
	} {
		code, out, errs := runCLI(t, vars, "", "session", "rewind", cpSession, "--to", name, "--interrupt")
		if code != 0 || p.last != (holdfast.RewindSession{To: want, Interrupt: true}) {
			t.Errorf("%s: %d %q %q, asked %+v", name, code, out, errs, p.last)
		}
		told := cpSession + " is back at checkpoint " + string(want) + ", after event 30; files restored\n" +
			"to undo: holdfast session rewind " + cpSession + " --to " + string(p.list[0].ID) + "\n"
		if d := cmp.Diff(told, out); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	code, out, _ := runCLI(t, vars, "", "session", "rewind", cpSession, "--to", "#3", "--keep-files")
	if code != 0 || p.last != (holdfast.RewindSession{To: three, Files: "keep"}) || !strings.Contains(out, "files kept\n") || !strings.HasSuffix(out, " --keep-files\n") {
		t.Errorf("kept files: %d %q, asked %+v", code, out, p.last)
	}
	code, out, _ = runCLI(t, vars, "", "session", "rewind", cpSession, "--to", "3", "--json")
	var done holdfast.RewoundSession
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != 0 || done.Rewound.Kept != p.list[0].ID {
		t.Errorf("%d %q %v", code, out, err)
	}

	for _, name := range []string{"my title", "302099a8057", "01890A5D"} {
		if code, _, errs := runCLI(t, vars, "", "session", "rewind", name, "--to", "3"); code != 0 {
			t.Errorf("session %s: %d %q", name, code, errs)
		}
	}

	p.last = nil
	code, out, errs := runCLI(t, vars, "", "session", "rewind", "My ti", "--to", "3")
	if code != holdfast.KindInvalid.ExitCode() || out != "" || !strings.Contains(errs, `"My ti" is only the beginning of the session title "My title"`) {
		t.Errorf("the beginning of a title: %d %q %q", code, out, errs)
	}
	for name, want := range map[string]struct {
		kind holdfast.Kind
		says string
	}{
		"9": {holdfast.KindNotFound, "has no turn 9"}, "#2": {holdfast.KindNotFound, "has no turn 2"},
		"#x": {holdfast.KindInvalid, "cannot name a checkpoint"}, "-3": {holdfast.KindInvalid, ""}, "": {holdfast.KindInvalid, "cannot name a checkpoint"}, "caf": {holdfast.KindInvalid, "cannot name a checkpoint"},
		"cafe": {holdfast.KindInvalid, "fits several checkpoints"}, "dddddddd": {holdfast.KindNotFound, "no checkpoint with an id like"}, "99999999": {holdfast.KindNotFound, "no checkpoint with an id like"},
	} {
		code, out, errs := runCLI(t, vars, "", "session", "rewind", cpSession, "--to", name)
		if code != want.kind.ExitCode() || out != "" || !strings.Contains(errs, want.says) || !strings.Contains(errs, "hint: ") {
			t.Errorf("%q: %d %q %q", name, code, out, errs)
		}
	}
	if p.last != nil {
		t.Errorf("a wrong name asked for %+v", p.last)
	}
}

// TestSessionRewindPlan: the hint below a plan names a command that works.
func TestSessionRewindPlan(t *testing.T) {
	p, vars := newPastServer(t)
	to := string(p.list[1].ID)
	for _, c := range []struct {
		plan       holdfast.RewindPlan
		says, hint string
	}{
		{
			holdfast.RewindPlan{Write: []string{"a"}},
			"1 file to write, 0 to remove\n",
			"hint: holdfast session rewind " + cpSession + " --to " + to + " --files --yes carries the plan out\n",
		},
		{
			holdfast.RewindPlan{Write: []string{"a"}, Conflicts: []string{"a"}, ConflictCount: 1},
			"1 conflict: the rewind will be refused\n",
			"hint: holdfast session fork " + cpSession + " --at " + to + " makes a copy of the session with the files of that checkpoint; ",
		},
	} {
		p.plan = c.plan
		code, out, errs := runCLI(t, vars, "", "session", "rewind", cpSession, "--to", "#3", "--files")
		if code != holdfast.KindConflict.ExitCode() || !strings.HasSuffix(out, c.says) || !strings.Contains(errs, c.hint) || strings.Count(errs, "--yes carries") != 1-c.plan.ConflictCount {
			t.Errorf("%+v: %d %q %q", c.plan, code, out, errs)
		}
	}
}

func TestSessionFork(t *testing.T) {
	p, vars := newPastServer(t)
	code, out, errs := runCLI(t, vars, "", "session", "fork", cpSession)
	if code != 0 || out != cpOther+"\n" || !strings.Contains(errs, "to go on: holdfast chat "+cpOther) || p.last != (holdfast.ForkSession{}) || p.key == "" {
		t.Errorf("%d %q %q, asked %+v with key %q", code, out, errs, p.last, p.key)
	}
	code, out, errs = runCLI(t, vars, "", "session", "fork", cpSession, "--at", "3", "--title", "two", "--id", cpOther, "--idempotency-key", "mine", "--json")
	var made struct{ Session holdfast.Session }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || errs != "" || made.Session.Title != "two" || p.key != "mine" {
		t.Errorf("%d %q %q %v, key %q", code, out, errs, err, p.key)
	}
	if want := (holdfast.ForkSession{At: p.list[1].ID, ID: cpOther, Title: "two"}); p.last != want {
		t.Errorf("asked for %+v", p.last)
	}
	// The new session is the last one.
	if left, err := filepath.Glob(filepath.Join(vars["XDG_STATE_HOME"], "*", "last-*")); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}
