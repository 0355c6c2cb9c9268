package chat

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

const forked = "01890a5d-e0b2-7d3e-8f40-6c7b8a9d0e1f"

// past is a server with a session of three turns, of which a rewind left one more behind. Each stream of
// a log has one event and goes on.
type past struct {
	mu      sync.Mutex
	asked   []string
	follows chan string
	ended   chan string
	// files is what a rewind does with the files.
	files holdfast.FilesState
}

func (p *past) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	cp := func(n, seq int64, reason holdfast.CheckpointReason, abandoned bool) holdfast.Checkpoint {
		return holdfast.Checkpoint{ID: holdfast.CheckpointID("cp" + string(rune('0'+seq))), Reason: reason, Number: n, Seq: seq, Abandoned: abandoned}
	}
	p.mu.Lock()
	if r.Method == http.MethodPost {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		text, _ := json.Marshal(body)
		p.asked = append(p.asked, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]+" "+string(text))
	}
	p.mu.Unlock()
	var answer any
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sessions/"), "/")
	switch rest {
	case "checkpoints":
		answer = holdfast.CheckpointPage{Checkpoints: []holdfast.Checkpoint{
			cp(4, 9, holdfast.CheckpointKept, true), cp(3, 7, holdfast.CheckpointTurn, false), cp(2, 6, holdfast.CheckpointDirect, false),
			cp(2, 5, holdfast.CheckpointTurn, false), cp(1, 3, holdfast.CheckpointTurn, false),
		}}
	case "rewind":
		answer = holdfast.RewoundSession{Session: holdfast.Session{ID: session, Title: "back"}, Rewound: holdfast.Rewound{Kept: "kept", Seq: 6, Files: p.files}}
	case "transcript":
		answer = map[string]any{"entries": []holdfast.TranscriptEntry{
			{Role: holdfast.RoleUser, Text: "after " + r.URL.Query().Get("after")},
			{Role: holdfast.RoleTool, Text: "hidden"},
			{Role: holdfast.RoleAssistant, Text: "done\x1b[2J"},
			{Role: holdfast.RoleUser, Text: "taken back", Seq: 7},
		}}
	case "fork":
		answer = map[string]any{"session": holdfast.Session{ID: forked, Trust: holdfast.Untrusted, Model: "m", LastSeq: 4}}
	case "turns":
		answer = holdfast.Sent{Turn: holdfast.Turn{ID: holdfast.TurnID("turn in " + id)}}
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("id: 5\nevent: notice\ndata: {\"session_id\":\"" + id + "\",\"seq\":5,\"type\":\"notice\",\"data\":{\"text\":\"log of " + id + "\"}}\n\n"))
		w.(http.Flusher).Flush()
		p.follows <- id
		<-r.Context().Done()
		p.ended <- id
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// typeIn types a line and returns what is shown once the server has answered.
func typeIn(t *testing.T, l *link, inputs <-chan Input, k *Talk, typed string) string {
	t.Helper()
	for _, e := range k.Line(typed) {
		if _, ok := e.(Call); !ok {
			t.Errorf("%s: %s", typed, text([]Effect{e}))
		}
		l.do(e)
	}
	return text((<-inputs)(k))
}

func TestRewindGoesBackByTurns(t *testing.T) {
	undo := "to undo: holdfast session rewind " + session + " --to kept\n"
	for typed, want := range map[string]struct{ to, shows string }{
		"/rewind":   {"cp6", "after 3\ndone\\u001b[2J\nturn 2 is the last one now; files restored\n" + undo},
		"/rewind 1": {"cp6", "after 3\ndone\\u001b[2J\nturn 2 is the last one now; files restored\n" + undo},
		"/rewind 2": {"cp3", "after \ndone\\u001b[2J\nturn 1 is the last one now; files restored\n" + undo},
		"/rewind 3": {"", "! checkpoint: the session has no checkpoint from 3 turns ago\nhint: list the checkpoints: holdfast session checkpoints " + session + "\n"},
	} {
		p := &past{files: holdfast.FilesRestored}
		l, inputs := linked(t, p)
		k := talking()
		if got := typeIn(t, l, inputs, k, typed); got != want.shows {
			t.Errorf("%s:\n%s\nnot\n%s", typed, got, want.shows)
		}
		p.mu.Lock()
		asked := strings.Join(p.asked, "\n")
		p.mu.Unlock()
		if want.to == "" && asked != "" || want.to != "" && (asked != `rewind {"to":"`+want.to+`"}` || k.Session.Title != "back") {
			t.Errorf("%s asked for %s, session %+v", typed, asked, k.Session)
		}
	}
	for _, wrong := range []string{"/rewind x", "/rewind 0", "/rewind -1", "/rewind 1 2"} {
		expect(t, wrong, talking().Line(wrong), "/rewind goes back by one turn, /rewind 3 by three; /rewind 3 --files takes back files of a directory of your own, too\n")
	}
}

// TestRewindOfAnOwnDirectory: a rewind says that the files of a directory of the user's own stay, and takes them back on request.
func TestRewindOfAnOwnDirectory(t *testing.T) {
	for typed, want := range map[string]struct {
		files        holdfast.FilesState
		asked, shows string
	}{
		"/rewind":           {holdfast.FilesKept, `rewind {"to":"cp6"}`, "to see what would take them back, too: holdfast session rewind " + session + " --to cp6 --files\n"},
		"/rewind 1 --files": {holdfast.FilesRestored, `rewind {"files":"restore","to":"cp6"}`, "--to kept --files --yes\n"},
	} {
		p := &past{files: want.files}
		l, inputs := linked(t, p)
		if got := typeIn(t, l, inputs, talking(), typed); !strings.Contains(got, want.shows) || strings.Contains(got, "taken back") {
			t.Errorf("%s shows\n%s", typed, got)
		}
		if len(p.asked) != 1 || p.asked[0] != want.asked {
			t.Errorf("%s asked for %q", typed, p.asked)
		}
	}
}

// TestForkSwitches: messages and events are those of the new session from then on.
func TestForkSwitches(t *testing.T) {
	p := &past{follows: make(chan string, 2), ended: make(chan string, 2)}
	l, inputs := linked(t, p)
	k := talking()
	l.do(Follow{session, 0})
	<-p.follows
	stale := <-inputs // an event that the conversation has not applied yet
	k.About = func(s holdfast.Session, fork bool) (out []plain.Line) {
		if fork && s.ID == forked {
			out = append(out, plain.Line{Text: "about a fork"})
		}
		return out
	}
	for _, e := range k.Line("/fork another try") {
		l.do(e)
	}
	effects := (<-inputs)(k)
	expect(t, "forked", effects, "[chat.Remember]\nabout a fork\nsession "+forked+" (untrusted, model m); /help lists what else you can type\n[chat.Follow]\n")
	expect(t, "an event of the other session", stale(k), "")
	for _, e := range effects {
		if _, shown := e.(Show); !shown {
			l.do(e)
		}
	}
	if a, b := <-p.follows, <-p.ended; a != forked || b != session {
		t.Errorf("%s is followed, %s no longer", a, b)
	}
	expect(t, "an event of the new session", (<-inputs)(k), "! log of "+forked+"\n")
	for _, e := range k.Line("hi") {
		l.do(e)
	}
	(<-inputs)(k)
	if !k.pending.open["turn in "+forked] {
		t.Errorf("the message went elsewhere: %+v", k.pending)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[0] != `fork {"title":"another try"}` {
		t.Errorf("%q", p.asked)
	}
}

func TestRewindAndForkWaitForTheTurn(t *testing.T) {
	k := talking()
	k.Event(event(t, holdfast.EventTurnStarted, "t1", holdfast.TurnStartedData{}))
	expect(t, "rewind", k.Line("/rewind"), "a turn runs: wait for its end, or press Ctrl-C, then /rewind\n")
	expect(t, "fork", k.Line("/fork"), "a turn runs: wait for its end, or press Ctrl-C, then /fork\n")

	// A message that was sent meanwhile keeps the chat where it is.
	l, inputs := linked(t, &past{})
	k = talking()
	for _, e := range k.Line("/fork") {
		l.do(e)
	}
	in := <-inputs
	k.Line("wait")
	expect(t, "a message is on its way", in(k), "forked, but your message goes to this session; the other one: holdfast chat "+forked+"\n")
	if k.Session.ID != session {
		t.Errorf("the chat switched to %s", k.Session.ID)
	}
}
