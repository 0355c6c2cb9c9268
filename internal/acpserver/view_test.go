package acpserver

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
)

func event(t testing.TB, typ holdfast.EventType, data any) holdfast.Event {
	t.Helper()
	ev, err := holdfast.Event{Seq: 1, Type: typ}.With(data)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

func piece(t testing.TB, text string, at int) holdfast.Event {
	return event(t, holdfast.DeltaText, holdfast.TextDelta{Text: text, At: int64(at)})
}

func said(t testing.TB, text string) holdfast.Event {
	return event(t, holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}})
}

// shown is what an editor has of the agent's text and thoughts.
func shown(v *view, events ...holdfast.Event) (agent, thought string) {
	for _, ev := range events {
		for _, u := range v.updates(ev) {
			if c := u.AgentMessageChunk; c != nil {
				agent += c.Content.Text.Text
			}
			if c := u.AgentThoughtChunk; c != nil && c.Meta == nil {
				thought += c.Content.Text.Text
			}
		}
	}
	return agent, thought
}

func TestAnswersAreShownOnce(t *testing.T) {
	void := event(t, holdfast.EventNotice, holdfast.Notice{Code: holdfast.NoticeVoid, Text: "again"})
	for name, c := range map[string]struct {
		events []holdfast.Event
		want   string
	}{
		"in pieces":              {[]holdfast.Event{piece(t, "Hel", 0), piece(t, "lo", 3), said(t, "Hello")}, "Hello"},
		"the end is missing":     {[]holdfast.Event{piece(t, "Hel", 0), said(t, "Hello")}, "Hello"},
		"the beginning is":       {[]holdfast.Event{piece(t, "lo", 3), said(t, "Hello")}, "Hello"},
		"the middle is":          {[]holdfast.Event{piece(t, "H", 0), piece(t, "lo", 3), piece(t, "!", 5), said(t, "Hello!")}, "Hello!"},
		"whole":                  {[]holdfast.Event{said(t, "Hello")}, "Hello"},
		"two":                    {[]holdfast.Event{piece(t, "a", 0), said(t, "a"), piece(t, "b", 0), said(t, "b")}, "ab"},
		"again in the same way":  {[]holdfast.Event{piece(t, "Hel", 0), void, piece(t, "He", 0), piece(t, "llo", 2), said(t, "Hello")}, "Hello"},
		"again without a notice": {[]holdfast.Event{piece(t, "Hel", 0), piece(t, "Hello", 0), said(t, "Hello")}, "Hello"},
		"again in another way":   {[]holdfast.Event{piece(t, "Wrong", 0), void, piece(t, "Ri", 0), piece(t, "ght", 2), said(t, "Right")}, "Wrong" + anew + "Right"},
		"other after a while":    {[]holdfast.Event{piece(t, "Hello", 0), void, piece(t, "Hel", 0), piece(t, "p", 3), said(t, "Help")}, "Hello" + anew + "Help"},
		"shorter than before":    {[]holdfast.Event{piece(t, "Hello", 0), void, piece(t, "Hel", 0), said(t, "Hel")}, "Hello" + anew + "Hel"},
	} {
		if got, _ := shown(&view{}, c.events...); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// TestAnyPiecesShowTheWhole: whichever deltas come, the answer is shown once.
func TestAnyPiecesShowTheWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const text = "größer, 日本語 and more: the quick brown fox"
	for range 2000 {
		var v view
		var events []holdfast.Event
		for at := 0; at < len(text); {
			n := min(1+rnd.IntN(8), len(text)-at)
			for at+n < len(text) && !utf8.RuneStart(text[at+n]) {
				n++
			}
			if rnd.IntN(5) > 0 {
				events = append(events, piece(t, text[at:at+n], at))
			}
			at += n
			if rnd.IntN(20) == 0 { // the server begins again with the same words
				at = 0
			}
			if rnd.IntN(40) == 0 {
				break
			}
		}
		if got, _ := shown(&v, append(events, said(t, text))...); got != text {
			t.Fatalf("%q of %d pieces", got, len(events))
		}
	}
}

func TestThoughtsAreShownOnce(t *testing.T) {
	think := func(text string) holdfast.Event {
		return event(t, holdfast.EventThinking, holdfast.Thinking{Text: text})
	}
	at := func(text string, n int64) holdfast.Event {
		return event(t, holdfast.DeltaThinking, holdfast.TextDelta{Text: text, At: n})
	}
	for name, c := range map[string][]holdfast.Event{
		"in pieces":  {at("one", 0), at("two", 3), think("one"), think("two"), said(t, "x")},
		"half":       {at("on", 0), think("one"), think("two"), said(t, "x")},
		"whole":      {think("one"), think("two"), said(t, "x")},
		"with holes": {at("o", 0), at("two", 3), think("one"), think("two"), said(t, "x")},
	} {
		v := &view{}
		if _, got := shown(v, c...); got != "onetwo" {
			t.Errorf("%s: %q", name, got)
		}
		if _, got := shown(v, at("next", 0), think("next")); got != "next" {
			t.Errorf("%s: then %q", name, got)
		}
	}
}

// TestADeltaFollowsAShorterThought: the log records another thought than the deltas had, and more deltas come.
func TestADeltaFollowsAShorterThought(t *testing.T) {
	for _, at := range []int{0, 1, 6} {
		v := &view{}
		_, got := shown(v,
			event(t, holdfast.DeltaThinking, holdfast.TextDelta{Text: "abcdef"}),
			event(t, holdfast.EventThinking, holdfast.Thinking{Text: "x"}),
			event(t, holdfast.DeltaThinking, holdfast.TextDelta{Text: "y", At: int64(at)}),
			event(t, holdfast.EventThinking, holdfast.Thinking{Text: "y"}), said(t, "z"))
		if !strings.HasPrefix(got, "abcdef"+anew+"x") || !strings.HasSuffix(got, "y") {
			t.Errorf("at %d: %q", at, got)
		}
	}
}

// TestUpdatesAreBounded: no event makes an update that an editor cannot read.
func TestUpdatesAreBounded(t *testing.T) {
	big := strings.Repeat("ü\x1b", 1<<20)
	in, err := json.Marshal(map[string]string{"command": big})
	if err != nil {
		t.Fatal(err)
	}
	var v view
	for _, ev := range []holdfast.Event{
		said(t, big), piece(t, big, 0),
		event(t, holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: big}}}),
		event(t, holdfast.EventNotice, holdfast.Notice{Text: big}),
		event(t, holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: "a", Name: "Bash", Input: in}),
		event(t, holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: "a", Text: big}),
		event(t, holdfast.EventToolAllowed, holdfast.ToolDecision{ToolUseID: "a", Input: in}),
		event(t, holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "a", Content: big}),
		event(t, holdfast.EventToolDenied, holdfast.ToolDecision{ToolUseID: "b", Reason: big}),
		event(t, holdfast.EventTurnFailed, holdfast.TurnEnded{Message: big}),
	} {
		for _, u := range v.updates(ev) {
			b, err := json.Marshal(u)
			if err != nil || len(b) > 1<<20 {
				t.Fatalf("%s: an update of %d bytes, %v", ev.Type, len(b), err)
			}
		}
	}
}

func TestRunningOutputGrows(t *testing.T) {
	var v view
	v.updates(event(t, holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: "a", Name: "Bash"}))
	total, n := 0, 0
	for range 10_000 {
		for _, u := range v.updates(event(t, holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: "a", Text: "line\n"})) {
			total += len(u.ToolCallUpdate.Content[0].Content.Content.Text.Text)
			n++
		}
	}
	if n < 10 || total > 10*maxLive {
		t.Errorf("%d updates of %d bytes in all", n, total)
	}
	if up := v.updates(event(t, holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: "unknown", Text: "x"})); up != nil {
		t.Errorf("output of a call that nobody asked for: %+v", up)
	}
}

func TestStopReasons(t *testing.T) {
	for want, r := range map[acp.StopReason]result{
		acp.StopReasonEndTurn:         {status: holdfast.TurnCompleted, end: holdfast.TurnEnded{StopReason: "end_turn"}},
		acp.StopReasonMaxTokens:       {status: holdfast.TurnCompleted, end: holdfast.TurnEnded{StopReason: "max_tokens"}},
		acp.StopReasonRefusal:         {status: holdfast.TurnCompleted, end: holdfast.TurnEnded{StopReason: "refusal"}},
		acp.StopReasonMaxTurnRequests: {status: holdfast.TurnCompleted, end: holdfast.TurnEnded{StopReason: "max_turns"}},
		acp.StopReasonCancelled:       {status: holdfast.TurnInterrupted, end: holdfast.TurnEnded{StopReason: "end_turn"}},
	} {
		if got := stopReason(r); got != want {
			t.Errorf("%+v: %s, not %s", r, got, want)
		}
	}
	_, err := result{status: holdfast.TurnFailed, end: holdfast.TurnEnded{Kind: holdfast.KindUnauthenticated, Message: "no key", Hint: "set one"}}.response(nil)
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != jsonrpc.InternalError || e.Message != "the turn failed: no key; hint: set one" {
		t.Errorf("%+v", err)
	}
}

func TestPromptText(t *testing.T) {
	text := func(uri, s string) acp.ContentBlock {
		return acp.ResourceBlock(acp.EmbeddedResourceResource{TextResourceContents: &acp.TextResourceContents{Uri: uri, Text: s}})
	}
	blob := func(s string) acp.ContentBlock {
		return acp.ResourceBlock(acp.EmbeddedResourceResource{BlobResourceContents: &acp.BlobResourceContents{Uri: "file:///b", Blob: s}})
	}
	got, err := promptText([]acp.ContentBlock{
		acp.TextBlock("look at"), text("file:///a", "x</resource>y"), acp.ResourceLinkBlock("b.go", "file:///b.go"), blob("aGk="),
	})
	want := "look at\n\n<resource uri=\"file:///a\">\nx<\\/resource>y\n</resource>\n\n[b.go](file:///b.go)\n\n<resource uri=\"file:///b\">\nhi\n</resource>"
	if err != nil || got != want {
		t.Errorf("%q %v", got, err)
	}
	for name, blocks := range map[string][]acp.ContentBlock{
		"nothing": {}, "spaces": {acp.TextBlock(" \n")}, "an image": {acp.ImageBlock("aGk=", "image/png")},
		"no base64": {blob("%")}, "bytes": {blob("AAE=")}, "huge": {acp.TextBlock(strings.Repeat("x", holdfast.MaxText+1))},
	} {
		if _, err := promptText(blocks); err == nil || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzUpdates: whatever stands in the log, the mapping neither panics nor makes
// something that does not encode.
func FuzzUpdates(f *testing.F) {
	types := []holdfast.EventType{
		holdfast.EventMessageUser, holdfast.EventMessageAssistant, holdfast.EventThinking, holdfast.DeltaText, holdfast.DeltaThinking,
		holdfast.EventToolRequested, holdfast.EventToolAllowed, holdfast.EventToolDenied, holdfast.EventToolStarted, holdfast.EventToolFinished,
		holdfast.EventToolUnknown, holdfast.DeltaToolOutput, holdfast.EventNotice, holdfast.EventSessionUpdated, holdfast.EventTurnFailed,
		holdfast.EventSessionResumed, holdfast.EventAgentStarted, holdfast.EventBoxLost, holdfast.EventSessionEnded, "no.such",
	}
	for i := range types {
		f.Add(byte(i), `{"text":"x","at":3,"tool_use_id":"u","name":"TodoWrite","input":{"todos":[{"content":"a","status":"completed"}]},"parts":[{"type":"text","text":"y"}]}`)
	}
	f.Add(byte(3), `{"text":"x","at":-1}`)
	f.Add(byte(3), `{"text":"","at":9223372036854775807}`)
	f.Add(byte(5), `{"tool_use_id":"","name":"","input":"\u0000\u001b]0;x"}`)
	f.Add(byte(0), `[`)
	f.Fuzz(func(t *testing.T, n byte, data string) {
		var v view
		for _, line := range strings.Split(data, "\n") {
			ev := holdfast.Event{Seq: 1, Type: types[int(n)%len(types)], Data: json.RawMessage(line)}
			n++
			for _, u := range v.updates(ev) {
				b, err := json.Marshal(acp.SessionNotification{SessionId: "s", Update: u})
				if err != nil || strings.Contains(string(b), "\n") {
					t.Fatalf("%s %q: %q %v", ev.Type, line, b, err)
				}
			}
		}
	})
}
