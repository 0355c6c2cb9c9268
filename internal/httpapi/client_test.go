package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

func newClient(t testing.TB, srv *httptest.Server) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: srv.URL, Token: testToken, ReconnectFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func collect(t testing.TB, seq func(func(holdfast.Event, error) bool)) []holdfast.Event {
	t.Helper()
	var out []holdfast.Event
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func typesOf(events []holdfast.Event) []holdfast.EventType {
	var out []holdfast.EventType
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

func TestASH3_RoundTripThroughTheClient(t *testing.T) {
	f, srv := start(t, nil)
	c := newClient(t, srv)
	ctx := t.Context()
	s, err := c.CreateSession(ctx, holdfast.CreateSession{Title: "t"}, "key")
	if err != nil {
		t.Fatal(err)
	}
	text := "snow ☃, 🦭, nul-free \u2028 and \"quotes\"\r\n\ttabs </script>"
	sent, err := c.Send(ctx, s.ID, holdfast.SendMessage{Text: text, Key: "k"})
	if err != nil || sent.Turn.Text != text {
		t.Fatalf("%+v %v", sent, err)
	}
	again, err := c.Send(ctx, s.ID, holdfast.SendMessage{Text: text, Key: "k"})
	if err != nil || !again.Duplicate || again.Turn.ID != sent.Turn.ID {
		t.Fatalf("%+v %v", again, err)
	}
	events := collect(t, c.AllEvents(ctx, s.ID, 0))
	want := []holdfast.EventType{
		holdfast.EventSessionCreated, holdfast.EventMessageUser, holdfast.EventTurnStarted,
		holdfast.EventMessageAssistant, holdfast.EventTurnCompleted,
	}
	if d := cmp.Diff(want, typesOf(events)); d != "" {
		t.Fatal(d)
	}
	var user holdfast.UserMessage
	if err := events[1].Decode(&user); err != nil || user.Text() != text {
		t.Errorf("text came back as %q, %v", user.Text(), err)
	}
	entries, next, err := c.Transcript(ctx, s.ID, 0, 0)
	if err != nil || next != 0 || len(entries) != 2 || entries[0].Text != text || entries[1].Text != "echo "+text {
		t.Errorf("transcript %+v, next %d, %v", entries, next, err)
	}
	if turns, err := c.Turns(ctx, s.ID, 0, 0); err != nil || len(turns) != 1 || turns[0].ID != sent.Turn.ID {
		t.Errorf("turns %+v, %v", turns, err)
	}
	if turn, err := c.Turn(ctx, s.ID, sent.Turn.ID); err != nil || turn.Text != text {
		t.Errorf("turn %+v, %v", turn, err)
	}
	if h, err := c.Ready(ctx); err != nil || !reflect.DeepEqual(h, f.health) {
		t.Errorf("health %+v, %v", h, err)
	}
	if err := c.DeleteSession(ctx, s.ID, holdfast.EndSession{Interrupt: true}); err != nil {
		t.Error(err)
	}
	if _, err := c.Session(ctx, s.ID); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a deleted session answers %v", err)
	}
}

func TestASH14_TurnStreamClosesAfterItsTerminalEvent(t *testing.T) {
	_, srv := start(t, nil)
	c := newClient(t, srv)
	id := createOne(t, srv)
	for range 2 {
		st, err := c.Stream(t.Context(), id, holdfast.SendMessage{Text: "hi", Key: "once"})
		if err != nil {
			t.Fatal(err)
		}
		got := collect(t, st.Events(t.Context()))
		want := []holdfast.EventType{holdfast.EventMessageUser, holdfast.EventTurnStarted, holdfast.EventMessageAssistant, holdfast.EventTurnCompleted}
		if d := cmp.Diff(want, typesOf(got)); d != "" {
			t.Fatal(d)
		}
		if got[0].Turn != st.Turn || got[0].Seq != st.Seq+1 {
			t.Errorf("stream of %s from %d begins with %+v", st.Turn, st.Seq, got[0])
		}
	}
}

func TestASH17_TurnStreamLeavesOtherTurnsOut(t *testing.T) {
	f, srv := start(t, nil)
	c := newClient(t, srv)
	id := createOne(t, srv)
	st, err := c.Stream(t.Context(), id, holdfast.SendMessage{Text: "hold"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), id, holdfast.SendMessage{Text: "other"}); err != nil {
		t.Fatal(err)
	}
	f.append(t.Context(), id, "", holdfast.EventNotice, holdfast.Notice{Code: "c"})
	f.finish(t.Context(), f.turns[id][0])
	got := collect(t, st.Events(t.Context()))
	want := []holdfast.EventType{
		holdfast.EventMessageUser, holdfast.EventTurnStarted, holdfast.EventNotice,
		holdfast.EventMessageAssistant, holdfast.EventTurnCompleted,
	}
	if d := cmp.Diff(want, typesOf(got)); d != "" {
		t.Fatal(d)
	}
}

func TestASH13_FollowFiltersAndGoesOn(t *testing.T) {
	f, srv := start(t, nil)
	c := newClient(t, srv)
	id := createOne(t, srv)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []holdfast.EventType
	for e, err := range c.Follow(ctx, id, 0, holdfast.EventSessionCreated, holdfast.EventTurnCompleted, holdfast.DeltaText) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Type); len(got) == 1 {
			turn := holdfast.TurnID(newID())
			f.journal.Publish(id, holdfast.DeltaText, turn, holdfast.TextDelta{Text: "d"})
			if _, err := c.Send(ctx, id, holdfast.SendMessage{Text: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) == 3 {
			break
		}
	}
	if d := cmp.Diff([]holdfast.EventType{holdfast.EventSessionCreated, holdfast.DeltaText, holdfast.EventTurnCompleted}, got); d != "" {
		t.Error(d)
	}
}

func TestErrorsKeepKindAndHint(t *testing.T) {
	f, srv := start(t, nil)
	c := newClient(t, srv)
	for _, kind := range holdfast.Words[holdfast.Kind]() {
		f.mu.Lock()
		f.fail = holdfast.Errorf(kind, "op", "it is %s", holdfast.Quote("so")).WithHint("do that")
		f.mu.Unlock()
		_, err := c.Session(t.Context(), holdfast.SessionID(newID()))
		if holdfast.KindOf(err) != kind || holdfast.HintOf(err) != "do that" || err.Error() != `op: it is "so"` {
			t.Errorf("%s came as %v, %s, hint %q", kind, err, holdfast.KindOf(err), holdfast.HintOf(err))
		}
	}
}

func TestFilesThroughTheClient(t *testing.T) {
	_, srv := start(t, nil)
	c := newClient(t, srv)
	ctx := t.Context()
	id := createOne(t, srv)
	data := bytes.Repeat([]byte("\x00\xff bytes"), 20000)
	for _, name := range []string{"a.txt", "dir with space/ü?#%.bin", "/home/agent/x", "deep/../b", "..a/b"} {
		info, err := c.WriteFile(ctx, id, name, bytes.NewReader(data), 0o755)
		if err != nil || info.Mode != 0o755 || info.Size != int64(len(data)) {
			t.Fatalf("%s: %+v %v", name, info, err)
		}
		r, err := c.ReadFile(ctx, id, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		r.Close()
	}
	if info, err := c.WriteFile(ctx, id, "empty", strings.NewReader(""), 0); err != nil || info.Size != 0 {
		t.Errorf("empty file: %+v %v", info, err)
	}
	if r, err := c.ReadFile(ctx, id, "empty"); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	if _, err := c.ReadFile(ctx, id, "dir"); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a directory reads as %v", err)
	}
	if list, err := c.ListFiles(ctx, id, ""); err != nil || len(list.Entries) != 1 {
		t.Errorf("%+v %v", list, err)
	}
	r, err := c.ReadFile(ctx, id, "cut")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err == nil {
		t.Error("a file cut in the middle reads as whole")
	}
	r.Close()
	if err := c.RemoveFile(ctx, id, "a.txt", true); err != nil {
		t.Error(err)
	}
}

func TestASH18_ExecThroughTheClient(t *testing.T) {
	f, srv := start(t, nil)
	c := newClient(t, srv)
	id := createOne(t, srv)
	req := holdfast.ExecRequest{Argv: []string{"x"}, Stdin: []byte{0, 255}, TimeoutMS: 5}
	res, err := c.Exec(t.Context(), id, req)
	if err != nil || res.ExitCode != 3 || string(res.Stdout) != "out\xff" {
		t.Fatalf("%+v %v", res, err)
	}
	if d := cmp.Diff(req, f.last); d != "" {
		t.Error(d)
	}
	var out, errs bytes.Buffer
	res, err = c.ExecStream(t.Context(), id, req, &out, &errs)
	if err != nil || res.ExitCode != 3 || out.String() != "part\xff" || errs.String() != "part\xff" {
		t.Errorf("%+v %v %q %q", res, err, out.String(), errs.String())
	}
	f.exec = func(_ context.Context, _ holdfast.ExecRequest, stdout, _ io.Writer) (holdfast.ExecResult, error) {
		if _, err := stdout.Write([]byte("some")); err != nil {
			return holdfast.ExecResult{}, err
		}
		return holdfast.ExecResult{}, holdfast.Errorf(holdfast.KindUnavailable, "exec", "the box died").WithHint("again")
	}
	out.Reset()
	_, err = c.ExecStream(t.Context(), id, req, &out, &errs)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) != "again" || out.String() != "some" {
		t.Errorf("%v after %q", err, out.String())
	}
}

func TestTerminalThroughTheClient(t *testing.T) {
	f, srv := start(t, nil)
	c := newClient(t, srv)
	id := createOne(t, srv)
	f.term = func(_ context.Context, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
		buf := make([]byte, 3)
		if _, err := io.ReadFull(in, buf); err != nil {
			return holdfast.ExecResult{}, err
		}
		go func() { _, _ = io.Copy(io.Discard, in) }() // ends when the API closes it
		if req.Size != (holdfast.TermSize{Rows: 5, Cols: 6}) || <-resize != (holdfast.TermSize{Rows: 7, Cols: 8}) {
			return holdfast.ExecResult{ExitCode: 1}, nil
		}
		_, err := out.Write(append([]byte("got "), buf...))
		return holdfast.ExecResult{Class: holdfast.ExitExit, ExitCode: 42}, err
	}
	resize := make(chan holdfast.TermSize, 1)
	resize <- holdfast.TermSize{Rows: 7, Cols: 8}
	var out bytes.Buffer
	res, err := c.Terminal(t.Context(), id, holdfast.TerminalRequest{Size: holdfast.TermSize{Rows: 5, Cols: 6}}, strings.NewReader("abc"), &out, resize)
	if err != nil || res.ExitCode != 42 || res.Class != holdfast.ExitExit || out.String() != "got abc" {
		t.Errorf("%+v %v %q", res, err, out.String())
	}
	f.term = func(context.Context, holdfast.TerminalRequest, io.Reader, io.Writer, <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
		return holdfast.ExecResult{}, holdfast.Errorf(holdfast.KindUnavailable, "terminal", "no box")
	}
	if _, err := c.Terminal(t.Context(), id, holdfast.TerminalRequest{}, strings.NewReader(""), &out, nil); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := c.Terminal(t.Context(), holdfast.SessionID(newID()), holdfast.TerminalRequest{}, strings.NewReader(""), &out, nil); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("terminal of an unknown session: %v", err)
	}
}

// TestTreesThroughTheClient: archives go both ways with all that belongs to them, in
// pieces, and a break is an error.
func TestTreesThroughTheClient(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Bounds.Copy = 1 })
	c := newClient(t, srv)
	ctx, id := t.Context(), withTurns(t, f, 0)
	f.store.mu.Lock()
	f.store.rows[id].Source = &holdfast.Source{Complete: true, Start: strings.Repeat("0a", 20)}
	f.store.mu.Unlock()
	to := holdfast.CopyTo{Path: "a dir/%2F?", Name: "n ä", Into: true, File: true}
	sum, err := c.WriteTree(ctx, id, to, strings.NewReader("tar"))
	if err != nil || sum.Bytes != 3 || !cmp.Equal(f.last, []any{to, "tar"}) {
		t.Errorf("%+v %v %+v", sum, err, f.last)
	}
	if _, err := c.WriteTree(ctx, id, holdfast.CopyTo{}, strings.NewReader("")); err != nil || !cmp.Equal(f.last, []any{holdfast.CopyTo{}, ""}) {
		t.Errorf("%v %+v", err, f.last)
	}
	large := io.LimitReader(zeros{}, 64<<20+10)
	if _, err := c.WriteTree(ctx, id, holdfast.CopyTo{}, large); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("more than the server takes: %v", err)
	}
	if _, err := c.WriteTree(ctx, id, holdfast.CopyTo{}, iotest.ErrReader(errors.New("torn"))); err == nil {
		t.Error("an archive that could not be read was sent")
	}
	for _, path := range []string{"", "src/x"} {
		r, err := c.ReadTree(ctx, id, path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "an archive of "+path {
			t.Errorf("%q %v", got, err)
		}
		r.Close()
	}
	r, err := c.ReadTree(ctx, id, "cut")
	if err == nil {
		_, err = io.ReadAll(r)
		r.Close()
	}
	if !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("an archive that broke off: %v", err)
	}
	if got, err := c.Import(ctx, id, strings.NewReader("tar")); err != nil || got.Session.ID != id || got.Copied.Bytes != 3 {
		t.Errorf("%+v %v", got, err)
	}
	var out bytes.Buffer
	if notes, err := c.Diff(ctx, id, holdfast.DiffPatch, &out); err != nil || notes != "" || out.String() != "+one\n" {
		t.Errorf("%q %v %q", notes, err, out.String())
	}
	if notes, err := c.Diff(ctx, id, holdfast.DiffNames, io.Discard); err != nil || notes != "first line\nsecond: 100 %" {
		t.Errorf("%q %v", notes, err)
	}
	if _, err := c.Diff(ctx, id, "colour", io.Discard); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a format that there is not: %v", err)
	}
}

// zeros is an endless source.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAgentsAndContainersThroughTheClient(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Bounds.Agent = 100 })
	c := newClient(t, srv)
	ctx := t.Context()
	a, err := c.DeployAgent(ctx, "one", strings.NewReader("tar"))
	if err != nil || a.Version != 1 || a.VersionID != "tar" {
		t.Fatalf("%+v %v", a, err)
	}
	if got, err := c.Agent(ctx, "one"); err != nil || got != a.Agent || len(a.Notices) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if list, err := c.Agents(ctx); err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
	if v, err := c.AgentVersions(ctx, "one"); err != nil || len(v) != 1 || v[0].ID != "tar" {
		t.Errorf("%+v %v", v, err)
	}
	if err := c.DeleteAgent(ctx, "two"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := c.DeployAgent(ctx, "one", strings.NewReader(strings.Repeat("x", 101))); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("an agent too large: %v", err)
	}
	if _, err := c.DeployAgent(ctx, "../x", strings.NewReader("")); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("%v", err)
	}
	f.boxes = []holdfast.Container{{ID: "s-x", State: holdfast.BoxIdle}}
	if list, err := c.Containers(ctx); err != nil || len(list) != 1 || list[0].ID != "s-x" {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := c.StopContainers(ctx, holdfast.StopContainers{All: true}); err != nil || !cmp.Equal(f.last, holdfast.StopContainers{All: true}) {
		t.Errorf("%+v %v", f.last, err)
	}
	pruned, err := c.PruneContainers(ctx, true)
	if err != nil || !pruned.DryRun || len(pruned.Pruned) != 1 || f.last != true {
		t.Errorf("prune: %+v, %v, asked %+v", pruned, err, f.last)
	}
	if _, err := c.StopContainers(ctx, holdfast.StopContainers{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("%v", err)
	}
}

func TestNoServerIsUnavailable(t *testing.T) {
	_, srv := start(t, nil)
	c := newClient(t, srv)
	srv.Close()
	_, err := c.Send(t.Context(), "x", holdfast.SendMessage{Text: "t", Key: "k"})
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "holdfast serve") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Session(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
