package chat

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// flaky is a server that is away for its first answers of each kind.
type flaky struct {
	mu   sync.Mutex
	away map[string]int // by path
	keys map[string][]string
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[r.URL.Path] = append(f.keys[r.URL.Path], r.Header.Get("Idempotency-Key"))
	w.Header().Set("Content-Type", "application/json")
	if f.away[r.URL.Path]--; f.away[r.URL.Path] >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(holdfast.Problem{Status: 503, Kind: holdfast.KindUnavailable, Detail: "away"})
		return
	}
	if r.URL.Path == "/v1/sessions" {
		_ = json.NewEncoder(w).Encode(map[string]any{"session": holdfast.Session{ID: session}})
		return
	}
	_ = json.NewEncoder(w).Encode(holdfast.Sent{Turn: holdfast.Turn{ID: "t1"}})
}

// linked is a link to a server; what it hears comes from the channel.
func linked(t *testing.T, h http.Handler) (*link, <-chan Input) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{URL: srv.URL, Token: "t", ReconnectFor: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	inputs, n := make(chan Input), 0
	l := &link{
		ctx: ctx, calls: c, stream: c, person: true, remember: func(holdfast.SessionID) {},
		newKey: func() (string, error) { n++; return "key" + string(rune('0'+n)), nil },
		post: func(in Input) {
			select {
			case inputs <- in:
			case <-ctx.Done():
			}
		},
	}
	l.start()
	return l, inputs
}

// TestAMessageIsSentOnce: while the server is away, session and message are repeated with
// the key of the first attempt, and it is said once that they wait.
func TestAMessageIsSentOnce(t *testing.T) {
	f := &flaky{away: map[string]int{"/v1/sessions": 1, "/v1/sessions/" + session + "/turns": 2}, keys: map[string][]string{}}
	l, inputs := linked(t, f)
	k := NewTalk(holdfast.Session{}, &holdfast.CreateSession{})
	k.Person = true
	for _, e := range k.Line("hello") {
		l.do(e)
	}
	var said []string
	for !(k.Create == nil && k.pending.waiting == 0) {
		said = append(said, text((<-inputs)(k)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, want := range map[string]int{"/v1/sessions": 2, "/v1/sessions/" + session + "/turns": 3} {
		keys := f.keys[path]
		if len(keys) != want {
			t.Errorf("%s was asked %d times, not %d", path, len(keys), want)
		}
		for _, key := range keys {
			if key == "" || key != keys[0] {
				t.Errorf("%s was asked with the keys %q", path, keys)
			}
		}
	}
	if len(said) != 4 {
		t.Errorf("%q", said)
	}
}

// TestAnAnswerIsTheOneThatWasTyped: what each answer asks of the server.
//
// FH-29.
func TestAnAnswerIsTheOneThatWasTyped(t *testing.T) {
	got := make(chan holdfast.AnswerApproval, 1)
	l, inputs := linked(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req holdfast.AnswerApproval
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		got <- req
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"approval":{}}`))
	}))
	for typed, want := range map[string]holdfast.AnswerApproval{
		"y":                             {Decision: "allow"},
		"s":                             {Decision: "allow", Scope: holdfast.ScopeSession},
		"w Bash(ls *)":                  {Decision: "allow", Scope: holdfast.ScopeWorkspace, Rules: []string{"Bash(ls *)"}},
		"s Bash(a, b), Bash(x (y, z)),": {Decision: "allow", Scope: holdfast.ScopeSession, Rules: []string{"Bash(a, b)", "Bash(x (y, z))"}},
		"n not now":                     {Decision: "deny", Reason: "not now"},
	} {
		k := talking()
		k.Ask(holdfast.Approval{ID: "q1", Tool: "Bash", Input: json.RawMessage(`{}`)})
		for _, e := range k.Line(typed) {
			l.do(e)
		}
		if req := <-got; !reflect.DeepEqual(req, want) {
			t.Errorf("%s: %+v, not %+v", typed, req, want)
		}
		(<-inputs)(k)
		if _, ok := k.Question(); ok {
			t.Errorf("%s: the question stays", typed)
		}
	}
}

// TestAllOpenQuestionsAreAsked: the questions that were open before the chat began are on several pages of a list.
func TestAllOpenQuestionsAreAsked(t *testing.T) {
	l, inputs := linked(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := holdfast.ApprovalPage{Approvals: []holdfast.Approval{{ID: "q1", Tool: "Bash", Input: json.RawMessage(`{}`)}}, Next: "more"}
		if r.URL.Query().Get("cursor") == "more" {
			page = holdfast.ApprovalPage{Approvals: []holdfast.Approval{{ID: "q2", Tool: "Bash", Input: json.RawMessage(`{}`)}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(page)
	}))
	k := talking()
	l.do(recall(session))
	(<-inputs)(k)
	if len(k.questions.open) != 2 || k.questions.open[1].ID != "q2" {
		t.Errorf("asked %+v", k.questions.open)
	}
}
