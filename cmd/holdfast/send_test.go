package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func event(t *testing.T, typ holdfast.EventType, data any) holdfast.Event {
	t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return holdfast.Event{Type: typ, Turn: "t", Seq: 1, Data: raw}
}

func said(t *testing.T, text string) holdfast.Event {
	return event(t, holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}})
}

func delta(t *testing.T, text string) holdfast.Event {
	return event(t, holdfast.DeltaText, holdfast.TextDelta{Text: text})
}

// show plays events and returns what came out.
func show(t *testing.T, live bool, events ...holdfast.Event) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	v := (&env{ctx: t.Context(), stdout: &out, stderr: &errs}).view(live)
	for _, e := range events {
		if err := v.event(e); err != nil {
			t.Fatal(err)
		}
	}
	return out.String(), errs.String()
}

// TestFailedSnapshotIsShown: a reader learns that there is nothing to go back to, and why, with the hint.
func TestFailedSnapshotIsShown(t *testing.T) {
	failed := event(t, holdfast.EventSnapshotFailed, holdfast.Failure{Message: "no space left", Hint: "free some space"})
	if out, errs := show(t, false, failed); out != "" || errs != "! the files of this turn have no checkpoint: no space left\nhint: free some space\n" {
		t.Errorf("%q %q", out, errs)
	}
	failed.Turn = ""
	if _, errs := show(t, false, failed); !strings.HasPrefix(errs, "! the files as they are now have no checkpoint: no space left\n") {
		t.Errorf("outside of a turn: %q", errs)
	}
}

func TestTurnViewShowsEveryTextOnce(t *testing.T) {
	for name, c := range map[string]struct {
		live   bool
		events []holdfast.Event
		want   string
	}{
		"deltas then the whole":     {true, []holdfast.Event{delta(t, "Hel"), delta(t, "lo"), said(t, "Hello")}, "Hello\n"},
		"deltas that miss the end":  {true, []holdfast.Event{delta(t, "Hel"), said(t, "Hello")}, "Hello\n"},
		"no deltas":                 {true, []holdfast.Event{said(t, "Hello\n")}, "Hello\n"},
		"a pipe gets no deltas":     {false, []holdfast.Event{delta(t, "Hel"), said(t, "Hello")}, "Hello\n"},
		"deltas of another attempt": {true, []holdfast.Event{delta(t, "Wrong"), said(t, "Right")}, "Wrong\nRight\n"},
		"voided deltas": {true, []holdfast.Event{
			delta(t, "Wro"), event(t, holdfast.EventNotice, holdfast.Notice{Code: "deltas.void", Text: "again"}), delta(t, "Ri"), said(t, "Right"),
		}, "Wro\nRight\n"},
		"two messages":      {true, []holdfast.Event{delta(t, "a"), said(t, "a"), delta(t, "b"), said(t, "b")}, "a\nb\n"},
		"escapes are shown": {true, []holdfast.Event{delta(t, "\x1b[3"), delta(t, "1mred"), said(t, "\x1b[31mred")}, `\u001b[31mred` + "\n"},
		"a pipe gets all":   {false, []holdfast.Event{said(t, "\x1b[31mred")}, "\x1b[31mred\n"},
		"only tools":        {true, []holdfast.Event{said(t, "")}, ""},
	} {
		if got, _ := show(t, c.live, c.events...); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestTurnViewNotices(t *testing.T) {
	three := 3
	for want, e := range map[string]holdfast.Event{
		"→ Ba\\nsh {\"a\":1}\n":          event(t, holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: "u", Name: "Ba\nsh", Input: json.RawMessage(`{"a":1}`)}),
		"queued, position 2\n":           event(t, holdfast.EventTurnQueued, holdfast.TurnQueuedData{Position: 2}),
		"waiting for a box, position 1":  event(t, holdfast.EventBoxQueued, holdfast.BoxQueued{Position: 1}),
		"box started in 7 ms (local)":    event(t, holdfast.EventBoxStarted, holdfast.BoxStarted{Driver: "local", DurationMS: 7}),
		"box.oom: too much":              event(t, holdfast.EventBoxOOM, holdfast.BoxEnded{Reason: "too much"}),
		"! model retries":                event(t, holdfast.EventNotice, holdfast.Notice{Text: "model retries\x1b[2J"}),
		"x then run this\n":              event(t, holdfast.EventNotice, holdfast.Notice{Text: strings.Repeat("x", 900) + " then run this"}),
		"went back to event 7; files re": event(t, holdfast.EventSessionRewound, holdfast.Rewound{Seq: 7, Files: holdfast.FilesRestored}),
		"resumed: tier live":             event(t, holdfast.EventSessionResumed, holdfast.Receipt{Tier: holdfast.TierLive}),
		"exit 3, 5 ms":                   event(t, holdfast.EventToolFinished, holdfast.ToolFinished{Outcome: holdfast.ExitExit, ExitCode: &three, DurationMS: 5}),
		"denied by mode: no":             event(t, holdfast.EventToolDenied, holdfast.ToolDecision{By: "mode", Reason: "no"}),
		"outcome unknown: died":          event(t, holdfast.EventToolUnknown, holdfast.ToolUnknown{Reason: "died"}),
	} {
		out, errs := show(t, true, e)
		if out != "" || !strings.Contains(errs, want) || strings.Contains(errs, "\x1b") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %q %q", e.Type, out, errs)
		}
	}
	if _, errs := show(t, true, event(t, holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "before", Outcome: holdfast.ExitOK})); errs != "← a tool ok, 0 ms\n" {
		t.Errorf("of a tool that was asked for before: %q", errs)
	}
	var errs strings.Builder
	v := (&env{stdout: io.Discard, stderr: &errs}).view(false)
	if err := v.end(event(t, holdfast.EventTurnInterrupted, holdfast.TurnEnded{Message: "interrupted"})); err == nil || errs.String() != "holdfast: the turn was interrupted\n" {
		t.Errorf("an interrupt: %q %v", errs.String(), err)
	}
	if _, errs := show(t, true, event(t, holdfast.EventToolRequested, holdfast.ToolRequested{Name: "Write", Input: json.RawMessage(`"` + strings.Repeat("x", 5000) + `"`)})); len(errs) > 300 {
		t.Errorf("a line of %d bytes", len(errs))
	}
}

// TestCtrlCDetaches: the turn goes on, and the command says how to see it again.
func TestCtrlCDetaches(t *testing.T) {
	id := "01890a5d-ac96-774b-bcce-b302099a8057"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "" {
			t.Error("no idempotency key")
		}
		w.Header().Set("Holdfast-Turn", "t")
		w.Header().Set("Holdfast-Seq", "4")
		_, _ = io.WriteString(w, "id: 5\nevent: message.assistant\ndata: {\"seq\":5,\"turn_id\":\"t\",\"type\":\"message.assistant\",\"data\":{\"parts\":[{\"type\":\"text\",\"text\":\"so far\"}]}}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	vars := map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := onWrite{then: cancel}
	var errs bytes.Buffer
	code := run(ctx, []string{"send", id, "hi"}, func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs)
	if code != 130 || out.String() != "so far\n" || !strings.Contains(errs.String(), "detached; the turn goes on: holdfast session events "+id+" --after 4 --follow") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
}

// onWrite is a screen that somebody reacts to.
type onWrite struct {
	text bytes.Buffer
	then func()
}

func (o *onWrite) Write(p []byte) (int, error) {
	defer o.then()
	return o.text.Write(p)
}

func (o *onWrite) String() string { return o.text.String() }

func TestCtrlCBeforeTheAnswerSaysHowToRepeat(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer srv.Close()
	vars := map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t"}
	var out, errs bytes.Buffer
	args := []string{"send", "01890a5d-ac96-774b-bcce-b302099a8057", "hi", "--idempotency-key", "mine"}
	code := run(ctx, args, func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs)
	if code != 130 || !strings.Contains(errs.String(), "--idempotency-key mine") {
		t.Errorf("%d %q", code, errs.String())
	}
}

func TestSendRefusesTooMuchOnStdin(t *testing.T) {
	var out, errs bytes.Buffer
	vars := map[string]string{"HOLDFAST_TOKEN": "t", "HOLDFAST_HOME": t.TempDir()}
	big := io.LimitReader(zeros{}, holdfast.MaxText+1)
	code := run(t.Context(), []string{"send", "01", "-"}, func(k string) string { return vars[k] }, big, &out, &errs)
	if code != 1 || !strings.Contains(errs.String(), "is over 10485760 bytes") || !strings.Contains(errs.String(), "hint: ") {
		t.Errorf("%d %q", code, errs.String())
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
