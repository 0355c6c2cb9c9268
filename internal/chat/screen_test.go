package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-run/holdfast"
)

// drawn is a screen of so many columns and rows, and the messages that it sends.
func drawn(t *testing.T, cols, rows int) *screen {
	t.Helper()
	s := sizeless(t)
	s.Update(tea.WindowSizeMsg{Width: cols, Height: rows})
	s.Update(settledMsg{})
	return s
}

// sizeless is a screen that does not know the size of its terminal yet.
func sizeless(t *testing.T) *screen {
	s := &screen{t: talking(), l: &link{messages: make(chan Message, 8), ctx: t.Context()}}
	s.now = s.t.live.now
	return s
}

func (s *screen) press(keys ...tea.KeyPressMsg) {
	for _, k := range keys {
		s.Update(k)
	}
}

func typed(text string) (out []tea.KeyPressMsg) {
	for _, r := range text {
		out = append(out, tea.KeyPressMsg{Code: r, Text: string(r)})
	}
	return out
}

var enter = tea.KeyPressMsg{Code: tea.KeyEnter}

// sent is the next message that the screen sends.
func (s *screen) sent(t *testing.T) string {
	t.Helper()
	select {
	case m := <-s.l.messages:
		return m.Text
	default:
		t.Fatal("nothing is sent")
		return ""
	}
}

// TestAPasteIsOneMessage: also when its lines look like commands, and without control.
//
// FH-25.
func TestAPasteIsOneMessage(t *testing.T) {
	s := drawn(t, 80, 24)
	s.Update(tea.PasteMsg{Content: "one\r\n/quit\r\n\x1b[2Jtwo\x07\n"})
	if len(s.l.messages) != 0 {
		t.Error("a paste sends itself")
	}
	s.press(enter)
	if got := s.sent(t); got != "one\n/quit\n[2Jtwo" {
		t.Errorf("%q", got)
	}
	if len(s.l.messages) != 0 || s.end != nil {
		t.Errorf("there is more: %d, %+v", len(s.l.messages), s.end)
	}
}

// TestAQuestionTakesNoMessage: what was being written waits for the end of the question;
// what is typed without Enter answers nothing.
func TestAQuestionTakesNoMessage(t *testing.T) {
	s := drawn(t, 80, 24)
	s.press(typed("yes pl")...)
	raw, err := json.Marshal(holdfast.Approval{ID: "q1", Turn: "t1", Tool: "Bash", Input: json.RawMessage(`{"command":"rm"}`)})
	if err != nil {
		t.Fatal(err)
	}
	s.Update(Input(func(k *Talk) []Effect {
		return k.Event(holdfast.Event{Type: holdfast.EventApprovalAsked, Turn: "t1", Seq: 2, Data: raw})
	}))
	s.press(typed("ease")...)
	if got := s.editor.Text(); got != "ease" {
		t.Errorf("the editor holds %q", got)
	}
	s.press(enter)
	if s.t.asking != 0 || len(s.l.messages) != 0 {
		t.Error("a word was taken for an answer or a message")
	}
	s.Update(Input(func(k *Talk) []Effect { k.questions.settled("q1"); return nil }))
	s.press(typed("ease")...)
	s.press(enter)
	if got := s.sent(t); got != "yes please" {
		t.Errorf("%q", got)
	}
}

// TestNothingGoesAboveBeforeAFrame: the renderer would put rows in the wrong place, and so
// it would right after a change of the size.
func TestNothingGoesAboveBeforeAFrame(t *testing.T) {
	s := drawn(t, 80, 24)
	s.Update(Input(func(*Talk) []Effect { return []Effect{say("early")} }))
	if s.showing || len(s.lines) != 1 {
		t.Error("rows went above before the first frame")
	}
	if s.Update(drawnMsg{}); !s.showing {
		t.Error("rows did not go above after the first frame")
	}
	s.Update(shownMsg{})
	s.Update(tea.WindowSizeMsg{Width: 20, Height: 10})
	s.Update(Input(func(*Talk) []Effect { return []Effect{say("meanwhile, the size changed")} }))
	if s.showing {
		t.Error("rows went above while the size changed")
	}
	if s.Update(settledMsg{}); !s.showing {
		t.Error("rows did not go above once the size stood")
	}
}

// TestNothingGoesAboveBeforeTheSize: the first frame may be drawn before the size is known; rows that were broken without it
// would be four columns wide. A screen that ends does not wait for the size.
func TestNothingGoesAboveBeforeTheSize(t *testing.T) {
	early := Input(func(*Talk) []Effect { return []Effect{say("early and long")} })
	s := sizeless(t)
	s.Update(early)
	if s.Update(drawnMsg{}); s.showing {
		t.Error("rows went above before the size was known")
	}
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	if s.Update(settledMsg{}); !s.showing || len(s.rows) != 0 {
		t.Errorf("shown %v, left %q", s.showing, s.rows)
	}
	s = sizeless(t)
	s.Update(early)
	s.Update(drawnMsg{})
	if s.Update(Input(func(*Talk) []Effect { return []Effect{Leave{}} })); !s.showing {
		t.Error("a screen without a size cannot end")
	}
}

// TestTheScreenHolds: whatever happens, no more than half of the rows and no row wider
// than the terminal, at any size.
func TestTheScreenHolds(t *testing.T) {
	for _, size := range [][2]int{{20, 6}, {20, 24}, {80, 24}, {200, 60}} {
		s := drawn(t, size[0], size[1])
		s.Update(Input(func(k *Talk) []Effect {
			k.Event(event(t, holdfast.EventTurnStarted, "t1", holdfast.TurnStartedData{}))
			k.Event(event(t, holdfast.DeltaText, "t1", holdfast.TextDelta{Text: strings.Repeat("# an answer **of** some length\n", 300)}))
			for i := range 5 {
				k.Event(event(t, holdfast.EventToolRequested, "t1", holdfast.ToolRequested{ToolUseID: fmt.Sprint(i), Name: "Bash", Input: json.RawMessage(`{"command":"go test ./... -run 日本語日本語日本語日本語日本語"}`)}))
				k.Event(event(t, holdfast.DeltaToolOutput, "t1", holdfast.ToolOutput{ToolUseID: fmt.Sprint(i), Text: strings.Repeat("\x1b[31mline\r\n", 50)}))
			}
			k.Line("one that waits\nwith lines")
			return nil
		}))
		s.press(typed(strings.Repeat("typed text ", 40))...)
		v := s.View()
		rows := strings.Split(v.Content, "\n")
		if len(rows) > max(3, size[1]/2) {
			t.Errorf("%v: %d rows", size, len(rows))
		}
		for _, r := range rows {
			if w := s.look.method.StringWidth(r); w > size[0] || strings.Contains(r, "\x1b[31m") {
				t.Errorf("%v: %d columns: %q", size, w, r)
			}
		}
		if c := v.Cursor; c == nil || c.Y >= len(rows) || c.X >= size[0] {
			t.Errorf("%v: the cursor is at %+v", size, c)
		}
		if !strings.Contains(v.Content, "typed") {
			t.Errorf("%v: what is typed is not seen", size)
		}
	}
}

// TestABrokenTerminalEndsTheChat: the renderer does not look whether it can write.
func TestABrokenTerminalEndsTheChat(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := newPane(w)
	if _, err := p.Write(append([]byte("x"), frame...)); err != nil {
		t.Fatal(err)
	}
	<-p.drawn
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("x")); err == nil {
		t.Fatal("a closed pipe takes bytes")
	}
	<-p.failed
	s := drawn(t, 80, 24)
	if _, cmd := s.Update(goneMsg{}); cmd == nil || s.end == nil || s.end.Err == nil || !s.quitting {
		t.Errorf("%+v", s.end)
	}
}
