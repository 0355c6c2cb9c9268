package unsaved

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
)

const session holdfast.SessionID = "01890a5d-ac96-774b-bcce-b302099a8057"

func attach(t *testing.T, e *Editors) *Editor {
	t.Helper()
	d, err := e.Attach(session)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTheNewestEditorIsAsked: a question goes to the newest editor of its session, and each gets its own answer; a text
// that is none is not an answer.
func TestTheNewestEditorIsAsked(t *testing.T) {
	e := &Editors{}
	ask := e.For(session)
	if text, unsaved, err := ask(t.Context(), "f"); text != "" || unsaved || err != nil {
		t.Errorf("without an editor: %q, %v, %v", text, unsaved, err)
	}
	first, second := attach(t, e), attach(t, e)
	answers := func(d *Editor, a Answer, bad bool) {
		go func() {
			q := <-d.Questions()
			if q.Path != "src/f" {
				t.Errorf("asked for %q", q.Path)
			}
			if err := d.Answer(q.ID, a); (err != nil) != bad {
				t.Errorf("the answer %.40v: %v", a, err)
			}
			if err := d.Answer(q.ID, a); !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Errorf("a second answer: %v", err)
			}
		}()
	}
	for _, c := range []struct {
		answer  Answer
		text    string
		unsaved bool
		err     string
	}{
		{Answer{Unsaved: true, Text: "new"}, "new", true, ""},
		{Answer{Unsaved: true}, "", true, ""},
		{Answer{}, "", false, ""},
		{Answer{Why: "WHY"}, "", false, "WHY"},
		{Answer{Unsaved: true, Text: strings.Repeat("x", MaxText+1)}, "", false, "limit"},
		{Answer{Unsaved: true, Text: "a\x00b"}, "", false, "not valid UTF-8"},
		{Answer{Unsaved: true, Text: "\xff"}, "", false, "not valid UTF-8"},
	} {
		answers(second, c.answer, strings.Contains(c.err, "t"))
		text, unsaved, err := ask(t.Context(), "src/f")
		if text != c.text || unsaved != c.unsaved || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("the answer %.40v: %.40q, %v, %v", c.answer, text, unsaved, err)
		}
	}
	second.Leave()
	second.Leave()
	answers(first, Answer{Unsaved: true, Text: "of the first"}, false)
	if text, unsaved, err := ask(t.Context(), "src/f"); text != "of the first" || !unsaved || err != nil {
		t.Errorf("after the newest left: %q, %v, %v", text, unsaved, err)
	}
	for _, path := range []string{"", ".", "/etc/passwd", "../x", "a/../b", "a//b"} {
		if text, unsaved, err := ask(t.Context(), path); text != "" || unsaved || err != nil || len(first.asks) > 0 {
			t.Errorf("the path %q: %q, %v, %v", path, text, unsaved, err)
		}
	}
	other := e.For("01890a5d-ac96-774b-bcce-b302099a8058")
	if _, unsaved, err := other(t.Context(), "f"); unsaved || err != nil || len(first.asks) > 0 {
		t.Errorf("another session: %v, %v", unsaved, err)
	}
}

// TestSilentEditors: an editor that gives no answer costs three seconds, and none for a while; one that leaves costs none.
func TestSilentEditors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Editors{}
		ask := e.For(session)
		d := attach(t, e)
		cost := func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			_, unsaved, err := ask(ctx, "f")
			if unsaved {
				t.Error("a silent editor has a text")
			}
			return time.Since(began), err
		}
		if took, err := cost(t.Context()); took != patience || !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("the first question: %s, %v", took, err)
		}
		if took, err := cost(t.Context()); took != 0 || !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("the second question: %s, %v", took, err)
		}
		<-time.NewTimer(rest).C
		ended, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if took, err := cost(ended); took != time.Second || !errors.Is(err, context.Canceled) {
			t.Errorf("an interrupted turn: %s, %v", took, err)
		}
		time.AfterFunc(time.Second, d.Leave)
		if took, err := cost(t.Context()); took != time.Second || err != nil {
			t.Errorf("an editor that leaves: %s, %v", took, err)
		}
	})
}

// TestBoundsOfEditors: a session has a bounded number of editors, and each of them of questions.
func TestBoundsOfEditors(t *testing.T) {
	e := &Editors{}
	for range maxEditors {
		attach(t, e)
	}
	if _, err := e.Attach(session); !holdfast.IsKind(err, holdfast.KindTooLarge) || holdfast.HintOf(err) == "" {
		t.Errorf("one editor more: %v", err)
	}
	d := e.of[session][maxEditors-1]
	for range maxAsked {
		if _, _, _, err := e.ask(session, "f"); err != nil {
			t.Fatal(err)
		}
		<-d.asks
	}
	if _, _, _, err := e.ask(session, "f"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("one question more: %v", err)
	}
}
