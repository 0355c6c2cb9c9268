package client_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/sandbox"
)

// server is a whole server over the mem driver; stop may be called early.
func server(t *testing.T, cfg config.Config) (url, token string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, cfg, app.Options{
			Version: "test", Drivers: apptest.Drivers(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Ready: func(url string) { ready <- url },
		})
	}()
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case url = <-ready:
	case err := <-ended:
		done = true
		t.Fatalf("the server did not start: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(cfg.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	return url, strings.TrimSpace(string(data)), stop
}

func settings(t *testing.T) config.Config {
	cfg := config.Defaults()
	cfg.Data, cfg.Listen, cfg.Driver = t.TempDir(), "127.0.0.1:0", "mem"
	cfg.Limits.Mode = sandbox.LimitsBestEffort
	return cfg
}

func connect(t *testing.T) *client.Client {
	t.Helper()
	url, token, _ := server(t, settings(t))
	c, err := client.New(client.Config{URL: url, Token: token, ReconnectFor: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func create(t *testing.T, c *client.Client, req holdfast.CreateSession) holdfast.SessionID {
	t.Helper()
	s, err := c.CreateSession(t.Context(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// turn sends a message and returns its events.
func turn(t *testing.T, c *client.Client, id holdfast.SessionID, text string) []holdfast.Event {
	t.Helper()
	st, err := c.Stream(t.Context(), id, holdfast.SendMessage{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	var out []holdfast.Event
	for e, err := range st.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func folder(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func TestASH1_AgentsAgainstAServer(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	first, err := c.DeployAgent(ctx, "helper", folder(t, map[string]string{"CLAUDE.md": "one"}))
	if err != nil || first.Version != 1 {
		t.Fatalf("%+v %v", first, err)
	}
	second, err := c.DeployAgent(ctx, "helper", folder(t, map[string]string{"CLAUDE.md": "two", "b/c.md": "x"}))
	if err != nil || second.Version != 2 || second.VersionID == first.VersionID {
		t.Fatalf("%+v %v", second, err)
	}
	if got, err := c.Agent(ctx, "helper"); err != nil || !cmp.Equal(got, second.Agent) {
		t.Errorf("%+v %v", got, err)
	}
	list, err := c.Agents(ctx)
	if err != nil || !slices.ContainsFunc(list, func(a holdfast.Agent) bool { return a.Name == "helper" && a.Version == 2 }) {
		t.Errorf("%+v %v", list, err)
	}
	versions, err := c.AgentVersions(ctx, "helper")
	if err != nil || len(versions) != 2 {
		t.Errorf("%+v %v", versions, err)
	}
	_, err = c.DeployAgent(ctx, "bad", folder(t, map[string]string{"README": "x"}))
	if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error()+holdfast.HintOf(err), "CLAUDE.md") {
		t.Errorf("a folder without instructions: %v", err)
	}
	if _, err := c.Agent(ctx, "bad"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("half deployed: %v", err)
	}
}

// TestASH8_AgentDeletedFromAServer: a session has its agent's version, whatever becomes of
// the agent: it is resumed and goes on with its files; new ones are refused.
func TestASH8_AgentDeletedFromAServer(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	if _, err := c.DeployAgent(ctx, "helper", folder(t, map[string]string{"CLAUDE.md": "one", "notes.txt": "of the agent"})); err != nil {
		t.Fatal(err)
	}
	id, fresh := create(t, c, holdfast.CreateSession{Agent: "helper"}), create(t, c, holdfast.CreateSession{Agent: "helper"})
	turn(t, c, id, `<script>[{"tool":"Bash","input":{"command":"echo kept > f"}},{"say":"ok"}]</script>`)
	for _, id := range []holdfast.SessionID{id, fresh} {
		if _, err := c.PauseSession(ctx, id, holdfast.EndSession{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.StopContainers(ctx, holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteAgent(ctx, "helper"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSession(ctx, holdfast.CreateSession{Agent: "helper"}, ""); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a session of a deleted agent is made: %v", err)
	}
	if res, err := c.ResumeSession(ctx, id, holdfast.ResumeSession{}); err != nil || res.Receipt == nil || res.Receipt.Files != holdfast.FilesKept {
		t.Errorf("resume: %+v, %v", res, err)
	}
	for id, want := range map[holdfast.SessionID]string{id: "kept\nof the agent", fresh: "of the agent"} {
		if got := turn(t, c, id, "hi"); got[len(got)-1].Type != holdfast.EventTurnCompleted {
			t.Errorf("a session of a deleted agent: %s", got[len(got)-1].Data)
		}
		if res, err := c.Exec(ctx, id, holdfast.ExecRequest{Command: "test ! -e f || cat f; cat notes.txt"}); err != nil || string(res.Stdout) != want {
			t.Errorf("its files: %+v, %v", res, err)
		}
	}
}

// TestASH8_LifecycleAgainstAServer: the Go client through the life of a session.
//
// DOC-12, DOC-13, DOC-14, DOC-22.
func TestASH8_LifecycleAgainstAServer(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	id := create(t, c, holdfast.CreateSession{Title: "one", Tags: []string{"a"}, Env: map[string]string{"K": "secret"}})
	title, mode := "two", "plan"
	s, err := c.UpdateSession(ctx, id, holdfast.UpdateSession{Title: &title, Mode: &mode})
	if err != nil || s.Title != "two" || s.Mode != holdfast.ModePlan || s.Env["K"] != "***" {
		t.Fatalf("%+v %v", s, err)
	}
	res, err := c.ResumeSession(ctx, id, holdfast.ResumeSession{})
	if err != nil || res.Receipt != nil || res.Session.Status != holdfast.StatusActive {
		t.Errorf("resume of an active session: %+v %v", res, err)
	}
	if s, err = c.PauseSession(ctx, id, holdfast.EndSession{Reason: "r"}); err != nil || s.Status != holdfast.StatusPaused {
		t.Errorf("%+v %v", s, err)
	}
	if _, err = c.PauseSession(ctx, id, holdfast.EndSession{}); !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "paused") {
		t.Errorf("pausing again: %v", err)
	}
	if res, err = c.ResumeSession(ctx, id, holdfast.ResumeSession{}); err != nil || res.Receipt == nil {
		t.Errorf("%+v %v", res, err)
	}
	if _, err = c.Interrupt(ctx, id); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("interrupt without a turn: %v", err)
	}
	for range 2 { // ASH-12: a second end is harmless
		if s, err = c.EndSession(ctx, id, holdfast.EndSession{}); err != nil || s.Status != holdfast.StatusEnded {
			t.Errorf("%+v %v", s, err)
		}
	}
	if _, err = c.ResumeSession(ctx, id, holdfast.ResumeSession{}); !holdfast.IsKind(err, holdfast.KindGone) {
		t.Errorf("resume of an ended session: %v", err)
	}
	if _, err = c.Send(ctx, id, holdfast.SendMessage{Text: "x"}); !holdfast.IsKind(err, holdfast.KindGone) {
		t.Errorf("message to an ended session: %v", err)
	}
	if _, err = c.ResumeSession(ctx, "01890a5d-ac96-774b-bcce-b302099a8057", holdfast.ResumeSession{}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("resume of an unknown session: %v", err)
	}
	if err = c.DeleteSession(ctx, id, holdfast.EndSession{Purge: true}); err != nil {
		t.Error(err)
	}
	if page, err := c.Sessions(ctx, holdfast.SessionFilter{}); err != nil || len(page.Sessions) != 0 {
		t.Errorf("%+v %v", page, err)
	}
}

func TestASH2_CreateIsIdempotentByKeyAndTakesAnID(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	one, err := c.CreateSession(ctx, holdfast.CreateSession{Title: "x"}, "key")
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.CreateSession(ctx, holdfast.CreateSession{Title: "x"}, "key")
	if err != nil || two.ID != one.ID {
		t.Errorf("%+v %v", two, err)
	}
	if _, err := c.CreateSession(ctx, holdfast.CreateSession{Title: "y"}, "key"); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("the key with another request: %v", err)
	}
	const own = "01890a5d-ac96-474b-bcce-b302099a8057"
	if id := create(t, c, holdfast.CreateSession{ID: own}); id != own {
		t.Errorf("%s", id)
	}
	if _, err := c.CreateSession(ctx, holdfast.CreateSession{ID: own}, ""); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("the same id again: %v", err)
	}
	for _, req := range []holdfast.CreateSession{{ID: "x"}, {Agent: "nobody"}, {Trust: "some"}, {Mode: "m"}, {Model: "no-such"}, {Runtime: "r"}} {
		_, err := c.CreateSession(ctx, req, "")
		if k := holdfast.KindOf(err); k != holdfast.KindInvalid && k != holdfast.KindNotFound || holdfast.HintOf(err) == "" {
			t.Errorf("%+v: %v (hint %q)", req, err, holdfast.HintOf(err))
		}
	}
	if page, err := c.Sessions(ctx, holdfast.SessionFilter{}); err != nil || len(page.Sessions) != 2 {
		t.Errorf("refused creations left something: %d sessions, %v", len(page.Sessions), err)
	}
}

// WS-R109.
func TestASH13_EventsOfATurnComeInOrder(t *testing.T) {
	c := connect(t)
	id := create(t, c, holdfast.CreateSession{})
	got := turn(t, c, id, `<script>[{"tool":"Bash","input":{"command":"echo hi"}},{"say":"all done","chunks":3}]</script>`)
	var types []holdfast.EventType
	var text strings.Builder
	for _, e := range got {
		before := types[max(0, len(types)-1):]
		switch e.Type {
		case holdfast.DeltaText:
			// Each comes after the last tool and before the message that it is a piece of.
			if !slices.Equal(before, []holdfast.EventType{holdfast.EventToolFinished}) {
				t.Errorf("a piece of the answer comes after %v", before)
			}
			var d holdfast.TextDelta
			if err := e.Decode(&d); err != nil {
				t.Fatal(err)
			}
			text.WriteString(d.Text)
		case holdfast.DeltaToolOutput:
			if !slices.Equal(before, []holdfast.EventType{holdfast.EventToolStarted}) {
				t.Errorf("output of the tool comes after %v", before)
			}
		case holdfast.EventBoxStarted:
		default:
			types = append(types, e.Type)
		}
	}
	want := []holdfast.EventType{
		holdfast.EventMessageUser, holdfast.EventTurnStarted, holdfast.EventMessageAssistant, holdfast.EventToolRequested,
		holdfast.EventToolAllowed, holdfast.EventToolStarted, holdfast.EventToolFinished, holdfast.EventMessageAssistant, holdfast.EventTurnCompleted,
	}
	if d := cmp.Diff(want, types); d != "" {
		t.Error(d)
	}
	if text.String() != "all done" {
		t.Errorf("the deltas say %q", text.String())
	}
	turns, err := c.Turns(t.Context(), id, 0, 0)
	if err != nil || len(turns) != 1 || turns[0].Result != "all done" || turns[0].Status != holdfast.TurnCompleted {
		t.Fatalf("%+v %v", turns, err)
	}
	if one, err := c.Turn(t.Context(), id, turns[0].ID); err != nil || !cmp.Equal(one, turns[0]) {
		t.Errorf("%+v %v", one, err)
	}
	turn(t, c, id, "another")
	all, err := c.Turns(t.Context(), id, 1, 0)
	if err != nil || len(all) != 1 || all[0].Usage == nil {
		t.Fatalf("%+v %v", all, err)
	}
	if use, err := c.Usage(t.Context(), id); err != nil || use.Turns != 2 || use.Usage != turns[0].Usage.Add(*all[0].Usage) {
		t.Errorf("usage %+v, %v", use, err)
	}
	var roles []holdfast.Role
	for after, more := int64(0), true; more; {
		entries, next, err := c.Transcript(t.Context(), id, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			roles = append(roles, e.Role)
		}
		after, more = next, next != 0
	}
	wantRoles := []holdfast.Role{
		holdfast.RoleUser, holdfast.RoleAssistant, holdfast.RoleTool, holdfast.RoleResult, holdfast.RoleAssistant,
		holdfast.RoleUser, holdfast.RoleAssistant,
	}
	if d := cmp.Diff(wantRoles, roles); d != "" {
		t.Error(d)
	}
}

// TestASH6_FollowGoesOnAcrossARestart: the server stops and another one takes
// its address and its data; the reader sees one log.
func TestASH6_FollowGoesOnAcrossARestart(t *testing.T) {
	cfg := settings(t)
	url, token, stop := server(t, cfg)
	c, err := client.New(client.Config{URL: url, Token: token, ReconnectFor: 60 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id := create(t, c, holdfast.CreateSession{})
	cfg.Listen = strings.TrimPrefix(url, "http://")
	want, completed := int64(1), 0
	for e, err := range c.Follow(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 {
			continue
		}
		if e.Seq != want {
			t.Fatalf("event %d, not %d", e.Seq, want)
		}
		want++
		switch {
		case e.Type == holdfast.EventSessionCreated:
			if _, err := c.Send(t.Context(), id, holdfast.SendMessage{Text: "first"}); err != nil {
				t.Fatal(err)
			}
		case e.EndsTurn() && completed == 0:
			completed++
			stop()
			_, _, stop = server(t, cfg)
			if _, err := c.Send(t.Context(), id, holdfast.SendMessage{Text: "second"}); err != nil {
				t.Fatal(err)
			}
		case e.EndsTurn():
			var d holdfast.TurnEnded
			if err := e.Decode(&d); err != nil || !strings.HasPrefix(d.Result, "You have sent 2 messages.") {
				t.Errorf("%+v %v", d, err)
			}
			stop()
			return
		}
	}
}

func TestASH19_InterruptLeavesTheSessionUsable(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	id := create(t, c, holdfast.CreateSession{})
	st, err := c.Stream(ctx, id, holdfast.SendMessage{Text: `<script>[{"tool":"Bash","input":{"command":"echo begun; sleep 600"}}]</script>`})
	if err != nil {
		t.Fatal(err)
	}
	var last holdfast.Event
	for e, err := range st.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if last = e; e.Type == holdfast.EventToolStarted {
			if _, err := c.Interrupt(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Type != holdfast.EventTurnInterrupted {
		t.Errorf("the turn ended with %s", last.Type)
	}
	if got := turn(t, c, id, "still there?"); got[len(got)-1].Type != holdfast.EventTurnCompleted {
		t.Errorf("%s", got[len(got)-1].Data)
	}
}

func TestASH18_ExecFilesAndBoxesAgainstAServer(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	id := create(t, c, holdfast.CreateSession{})
	res, err := c.Exec(ctx, id, holdfast.ExecRequest{Command: "echo out; echo err >&2; exit 4"})
	if err != nil || res.ExitCode != 4 || string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" {
		t.Errorf("%+v %v", res, err)
	}
	res, err = c.Exec(ctx, id, holdfast.ExecRequest{Argv: []string{"sleep", "60"}, TimeoutMS: 50})
	if err != nil || res.Class != holdfast.ExitTimeout {
		t.Errorf("a timeout is a result: %+v %v", res, err)
	}
	var out, errs strings.Builder
	res, err = c.ExecStream(ctx, id, holdfast.ExecRequest{Argv: []string{"cat"}, Stdin: []byte("data")}, &out, &errs)
	if err != nil || res.Class != holdfast.ExitOK || out.String() != "data" || errs.String() != "" {
		t.Errorf("%+v %v %q %q", res, err, out.String(), errs.String())
	}
	for _, req := range []holdfast.ExecRequest{{}, {Argv: []string{"a"}, Command: "b"}, {Command: "a\x00b"}, {Command: "a", TimeoutMS: -1}, {Command: "a", Env: map[string]string{"A=B": "c"}}} {
		if _, err := c.Exec(ctx, id, req); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if _, err := c.WriteFile(ctx, id, "d/f.bin", bytes.NewReader([]byte{0, 255, 10}), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := c.ReadFile(ctx, id, "d/f.bin")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	r.Close()
	if err != nil || !bytes.Equal(data, []byte{0, 255, 10}) {
		t.Errorf("%v %v", data, err)
	}
	if _, err := c.ReadFile(ctx, id, "d"); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("%v", err)
	}
	if list, err := c.ListFiles(ctx, id, "d"); err != nil || len(list.Entries) != 1 || list.Entries[0].Mode&0o777 != 0o755 {
		t.Errorf("%+v %v", list, err)
	}
	if err := c.RemoveFile(ctx, id, "d", false); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("%v", err)
	}
	if err := c.RemoveFile(ctx, id, "d", true); err != nil {
		t.Error(err)
	}
	boxes, err := c.Containers(ctx)
	if err != nil || len(boxes) == 0 || boxes[0].Session != id {
		t.Fatalf("%+v %v", boxes, err)
	}
	if stopped, err := c.StopContainers(ctx, holdfast.StopContainers{IDs: []string{string(boxes[0].ID)}}); err != nil || len(stopped) == 0 {
		t.Errorf("%+v %v", stopped, err)
	}
	if h, err := c.Health(ctx); err != nil || h.Status == "" || h.PID != os.Getpid() {
		t.Errorf("%+v %v", h, err)
	}
	if _, err := c.Ready(ctx); err != nil {
		t.Error(err)
	}
}
