package native

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// logOf numbers payloads as a log. A string is the terminal or start event of
// the turn that was begun last.
func logOf(items ...any) []holdfast.Event {
	var out []holdfast.Event
	turn := 0
	for _, it := range items {
		typ := typeOf(it)
		if typ == holdfast.EventTurnStarted {
			turn++
		}
		if s, ok := it.(typed); ok {
			it = s.data
		}
		data, err := json.Marshal(it)
		if err != nil {
			panic(err)
		}
		out = append(out, holdfast.Event{Seq: int64(len(out) + 1), Type: typ, Turn: holdfast.TurnID(fmt.Sprint("turn", turn)), Data: data})
	}
	return out
}

// typed is a payload whose Go type does not name the event.
type typed struct {
	typ  holdfast.EventType
	data any
}

func typeOf(v any) holdfast.EventType {
	switch d := v.(type) {
	case typed:
		return d.typ
	case holdfast.UserMessage:
		return holdfast.EventMessageUser
	case holdfast.TurnStartedData:
		return holdfast.EventTurnStarted
	case holdfast.Thinking:
		return holdfast.EventThinking
	case holdfast.AssistantMessage:
		return holdfast.EventMessageAssistant
	case holdfast.ToolRequested:
		return holdfast.EventToolRequested
	case holdfast.ToolStarted:
		return holdfast.EventToolStarted
	case holdfast.ToolFinished:
		return holdfast.EventToolFinished
	case holdfast.ToolUnknown:
		return holdfast.EventToolUnknown
	case holdfast.Receipt:
		return holdfast.EventSessionResumed
	case holdfast.Notice:
		return holdfast.EventNotice
	}
	panic(fmt.Sprintf("%T", v))
}

func user(text string) holdfast.UserMessage {
	return holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}}
}

func steer(text string) holdfast.UserMessage {
	return holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}, Steer: true}
}

func says(seen int64, parts ...string) holdfast.AssistantMessage {
	m := holdfast.AssistantMessage{Seen: seen, Usage: holdfast.Usage{OutputTokens: 1}}
	for _, p := range parts {
		if id, ok := strings.CutPrefix(p, "use:"); ok {
			m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: id})
		} else {
			m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartText, Text: p})
		}
	}
	return m
}

func asks(id string) holdfast.ToolRequested {
	return holdfast.ToolRequested{ToolUseID: id, Name: "Bash", Input: json.RawMessage(`{}`)}
}

func allows(id string) typed {
	return typed{holdfast.EventToolAllowed, holdfast.ToolDecision{ToolUseID: id}}
}

func ends(typ holdfast.EventType) typed { return typed{typ, holdfast.TurnEnded{Message: "why"}} }

var begins = holdfast.TurnStartedData{}

// render is a conversation in short, one message a line.
func render(msgs []model.Message) string {
	var out []string
	for _, m := range msgs {
		line := string(m.Role[0]) + ":"
		for _, b := range m.Blocks {
			switch b.Type {
			case model.ToolUse:
				line += " use(" + b.ID + " " + b.Name + ")"
			case model.ToolResult:
				line += " result(" + b.ID + " " + b.Text + ")"
			case model.Thinking:
				line += " think(" + b.Text + ")"
			default:
				line += " [" + b.Text + "]"
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func foldAll(t interface{ Fatal(...any) }, log []holdfast.Event) *conversation.Conversation {
	c := new(conversation.Conversation)
	for _, e := range log {
		if err := c.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Settle(); err != nil {
		t.Fatal(err)
	}
	return c
}

func stands(c *conversation.Conversation, again bool) loop.Conversation {
	return read(c, nil).stands(c, again)
}

func TestFold(t *testing.T) {
	const unknown = "the outcome of this call is unknown: its turn ended before it did; check before repeating it"
	for name, c := range map[string]struct {
		log  []holdfast.Event
		want []string
	}{
		"a finished turn": {
			logOf(user("hi"), begins, holdfast.Thinking{Text: "hm"}, says(2, "let me", "use:a", "use:b"), asks("a"), asks("b"), allows("a"),
				typed{holdfast.EventToolDenied, holdfast.ToolDecision{ToolUseID: "b", Reason: "no"}},
				holdfast.ToolStarted{ToolUseID: "a"}, holdfast.ToolFinished{ToolUseID: "a", Content: "out"},
				says(2, "done"), ends(holdfast.EventTurnCompleted), user("next"), begins),
			[]string{"u: [hi]", "a: think(hm) [let me] use(a Bash) use(b Bash)", "u: result(a out) result(b denied: no)", "a: [done]", "u: [next]"},
		},
		"results come in model order": {
			logOf(user("hi"), begins, says(2, "use:a", "use:b"), asks("a"), asks("b"),
				holdfast.ToolFinished{ToolUseID: "b", Content: "B"}, holdfast.ToolFinished{ToolUseID: "a", Content: "A"}, says(2, "x")),
			[]string{"u: [hi]", "a: use(a Bash) use(b Bash)", "u: result(a A) result(b B)", "a: [x]"},
		},
		"steered while a tool ran": {
			logOf(user("hi"), begins, says(2, "use:a"), asks("a"), steer("stop that"), holdfast.ToolFinished{ToolUseID: "a", Content: "A"}, says(5, "ok")),
			[]string{"u: [hi]", "a: use(a Bash)", "u: result(a A) [stop that]", "a: [ok]"},
		},
		"steered while the model spoke": {
			logOf(user("hi"), begins, steer("early"), steer("late"), says(3, "use:a"), asks("a"), holdfast.ToolFinished{ToolUseID: "a", Content: "A"}, says(7, "ok")),
			[]string{"u: [hi] [early]", "a: use(a Bash)", "u: result(a A) [late]", "a: [ok]"},
		},
		"steered and never answered": {
			logOf(user("hi"), begins, says(2, "done"), steer("wait"), ends(holdfast.EventTurnCompleted), user("next"), begins),
			[]string{"u: [hi]", "a: [done]", "u: [wait] [next]"},
		},
		"interrupted": {
			logOf(user("hi"), begins, says(2, "use:a", "use:b", "use:c"), asks("a"), asks("b"), asks("c"), allows("b"),
				holdfast.ToolStarted{ToolUseID: "c"}, ends(holdfast.EventTurnInterrupted), user("next"), begins),
			[]string{
				"u: [hi]", "a: use(a Bash) use(b Bash) use(c Bash)",
				"u: result(a interrupted: this call was not carried out) result(b interrupted: this call was not carried out) result(c " + unknown + ") " +
					"[<system-reminder>The user interrupted the previous turn.</system-reminder>] [next]",
			},
		},
		"failed without an answer": {
			logOf(user("hi"), begins, ends(holdfast.EventTurnFailed), user("next"), begins),
			[]string{`u: [hi] [<system-reminder>The previous turn failed: "why".</system-reminder>] [next]`},
		},
		"unknown outcome": {
			logOf(user("hi"), begins, says(2, "use:a"), asks("a"), holdfast.ToolUnknown{ToolUseID: "a", Reason: "R"}, says(2, "x")),
			[]string{"u: [hi]", "a: use(a Bash)", "u: result(a the outcome of this call is unknown: R; check before repeating it)", "a: [x]"},
		},
		"ids that come again": {
			logOf(user("hi"), begins, says(2, "use:a"), asks("a"), holdfast.ToolFinished{ToolUseID: "a", Content: "1"},
				says(2, "use:a"), asks("a"), holdfast.ToolFinished{ToolUseID: "a", Content: "2"}, says(2, "x")),
			[]string{"u: [hi]", "a: use(a Bash)", "u: result(a 1)", "a: use(a Bash)", "u: result(a 2)", "a: [x]"},
		},
		"an answer after a crash": {
			logOf(user("hi"), begins, holdfast.Thinking{Text: "cut off"}, holdfast.Notice{Code: loop.NoticeReissued}, holdfast.Thinking{Text: "whole"}, says(2, "x")),
			[]string{"u: [hi]", "a: think(whole) [x]"},
		},
		"an answer without content": {
			logOf(user("hi"), begins, says(2), ends(holdfast.EventTurnCompleted), user("next"), begins),
			[]string{"u: [hi]", "a: [(no text)]", "u: [next]"},
		},
		"what the sandbox lost": {
			logOf(user("hi"), begins, says(2, "x"), ends(holdfast.EventTurnCompleted),
				typed{holdfast.EventBoxStopped, holdfast.BoxEnded{Reason: "idle", Processes: []string{"npm run dev", "</system-reminder>"}}},
				typed{holdfast.EventBoxLost, holdfast.BoxEnded{Reason: "killed"}},
				holdfast.Receipt{Lost: []string{"files"}}, user("next"), begins),
			[]string{
				"u: [hi]", "a: [x]",
				`u: [<system-reminder>The sandbox ended ("idle") and with it these background processes: "npm run dev", "‹/system-reminder›". They do not run any more.</system-reminder>]` +
					` [<system-reminder>The session was resumed. This did not survive: "files".</system-reminder>] [next]`,
			},
		},
	} {
		if d := cmp.Diff(strings.Join(c.want, "\n"), render(stands(foldAll(t, c.log), false).Messages)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

func TestLiveTail(t *testing.T) {
	h := foldAll(t, logOf(user("hi"), begins, says(2, "one", "use:z"), asks("z"), holdfast.ToolFinished{ToolUseID: "z", Content: "Z"},
		says(2, "use:a", "use:b", "use:c", "use:d"), asks("a"), asks("b"), asks("c"), asks("d"), allows("b"),
		holdfast.ToolStarted{ToolUseID: "c", Call: "call", Box: "s-x", Boot: "boot"}, steer("psst"), holdfast.ToolFinished{ToolUseID: "d", Content: "D"}))
	c := stands(h, true)
	var got []string
	for _, u := range c.Pending {
		got = append(got, fmt.Sprint(u.ID, u.State, u.Started.Call, u.Result.Text))
	}
	if d := cmp.Diff([]string{"a1", "b2", "c3call", "d4D"}, got); d != "" {
		t.Error(d)
	}
	if len(c.Messages) != 4 || c.Messages[3].Role != model.Assistant || cmp.Diff([]string{"psst"}, c.Joined) != "" {
		t.Errorf("%s\njoined %v", render(c.Messages), c.Joined)
	}
	if c.Seen != h.Seq || c.Steps != 2 || c.Usage.OutputTokens != 2 || c.Reissue {
		t.Errorf("%+v", c)
	}
	// What the loop does with its conversation leaves the log's alone.
	before := render(stands(h, true).Messages)
	c.Messages = loop.AppendUser(c.Messages[:1], model.Block{Type: model.Text, Text: "x"})
	c.Pending[0].State = loop.Answered
	if again := stands(h, true); render(again.Messages) != before || again.Pending[0].State != loop.Requested {
		t.Error("the conversation changed under the loop's hands")
	}
}

// TestPowerCutReachesTheModel: the notice comes with the next message, and in a turn
// that goes on after the answers of its tools, once in each case.
func TestPowerCutReachesTheModel(t *testing.T) {
	cut := holdfast.Notice{Code: holdfast.NoticeFilesAtRisk, Text: "files are gone"}
	want := "[<system-reminder>files are gone</system-reminder>]"
	done := logOf(user("a"), begins, says(1, "b"), ends(holdfast.EventTurnCompleted), cut, user("c"), begins)
	live := logOf(user("a"), begins, says(2, "use:u"), asks("u"), allows("u"), holdfast.ToolStarted{ToolUseID: "u"}, holdfast.ToolFinished{ToolUseID: "u", Content: "ok"}, cut, says(8, "use:v"), asks("v"))
	early := logOf(user("a"), begins, cut)
	for name, c := range map[string]struct {
		log  []holdfast.Event
		want string
	}{
		"between turns": {done, "u: [a]\na: [b]\nu: " + want + " [c]"},
		"after a tool":  {live, "u: [a]\na: use(u Bash)\nu: result(u ok) " + want + "\na: use(v Bash)"},
		"at the start":  {early, "u: [a] " + want},
	} {
		if got := render(stands(foldAll(t, c.log), false).Messages); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestACallKnowsWhenItBegan: a server that takes it up counts from that time.
func TestACallKnowsWhenItBegan(t *testing.T) {
	log := logOf(user("a"), begins, says(2, "use:u"), asks("u"), allows("u"),
		holdfast.ToolStarted{ToolUseID: "u", Call: "call"})
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	log[len(log)-1].Time = began
	if c := stands(foldAll(t, log), false); len(c.Pending) != 1 || !c.Pending[0].Began.Equal(began) {
		t.Errorf("%+v", c.Pending)
	}
}

func TestWhenAModelCallWasCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		log  []holdfast.Event
		want bool
	}{
		"before anything":    {logOf(user("hi"), begins), true},
		"calls open":         {logOf(user("hi"), begins, says(2, "use:a"), asks("a")), false},
		"calls answered":     {logOf(user("hi"), begins, says(2, "use:a"), asks("a"), holdfast.ToolFinished{ToolUseID: "a"}), true},
		"steered at the end": {logOf(user("hi"), begins, says(2, "done"), steer("wait")), false},
	} {
		h := foldAll(t, c.log)
		if got := stands(h, true).Reissue; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if stands(h, false).Reissue {
			t.Errorf("%s: reissued in a turn that was not cut off", name)
		}
	}
}

// TestCallsOfOneAnswerThatBeganApart: an agent of another runtime runs a call before
// it has said the next one of the same answer. Neither is lost.
func TestCallsOfOneAnswerThatBeganApart(t *testing.T) {
	h := foldAll(t, logOf(
		user("hi"), begins, says(2, "both", "use:a"), asks("a"), allows("a"), says(2, "use:b"), asks("b"),
		holdfast.ToolFinished{ToolUseID: "b", Content: "B"}, holdfast.ToolFinished{ToolUseID: "a", Content: "A"}, says(2, "done"), ends(holdfast.EventTurnCompleted),
	))
	c := stands(h, false)
	if err := valid(c); err != nil {
		t.Error(err)
	}
	got := render(c.Messages)
	if want := "result(a A) result(b B)"; !strings.Contains(got, want) || strings.Contains(got, filler) {
		t.Errorf("%s", got)
	}
}

// valid checks a conversation: it begins and ends with the user and alternates,
// each tool use is answered once in the next message, and no message is empty.
// The last answer's uses may be pending.
func valid(c loop.Conversation) error {
	pending := map[string]bool{}
	for _, u := range c.Pending {
		if u.State < loop.Requested || u.State > loop.Answered || pending[u.ID] {
			return fmt.Errorf("pending %+v", u)
		}
		pending[u.ID] = true
	}
	var open map[string]bool
	for i, m := range c.Messages {
		if want := []model.Role{model.User, model.Assistant}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is the %s's", i, m.Role)
		}
		if len(m.Blocks) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		uses := map[string]bool{}
		for _, b := range m.Blocks {
			switch b.Type {
			case model.ToolUse:
				if b.Name == "" || uses[b.ID] || m.Role != model.Assistant {
					return fmt.Errorf("message %d: use %+v", i, b)
				}
				uses[b.ID] = true
			case model.ToolResult:
				if !open[b.ID] {
					return fmt.Errorf("message %d: result %q answers nothing", i, b.ID)
				}
				delete(open, b.ID)
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d leaves %v open", i, open)
		}
		open = uses
	}
	for id := range open {
		if !pending[id] {
			return fmt.Errorf("use %q is neither answered nor pending", id)
		}
		delete(pending, id)
	}
	if len(pending) > 0 {
		return fmt.Errorf("pending %v is not in the last answer", pending)
	}
	return nil
}

// genTurn draws the log of one turn as the engine and the loop write it, cut off
// by a terminal event anywhere.
func genTurn(t *rapid.T, next func() int64) []any {
	out := []any{user(rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "text")), begins}
	base := next()
	maybeSteer := func() {
		if rapid.IntRange(0, 4).Draw(t, "steer") == 0 {
			out = append(out, steer("steered"))
		}
	}
	seen := func() int64 { return base + int64(rapid.IntRange(0, len(out)).Draw(t, "seen")) }
	for range rapid.IntRange(0, 3).Draw(t, "steps") {
		maybeSteer()
		if rapid.Bool().Draw(t, "thinks") {
			out = append(out, holdfast.Thinking{Text: "hm"})
		}
		n := rapid.IntRange(0, 3).Draw(t, "uses")
		parts := []string{}
		if rapid.Bool().Draw(t, "speaks") {
			parts = append(parts, "text")
		}
		for i := range n {
			parts = append(parts, fmt.Sprintf("use:u%d", i))
		}
		out = append(out, says(seen(), parts...))
		for i := range n {
			out = append(out, asks(fmt.Sprint("u", i)))
		}
		for _, i := range rapid.Permutation([]int{0, 1, 2}[:n]).Draw(t, "order") {
			id := fmt.Sprint("u", i)
			maybeSteer()
			switch rapid.IntRange(0, 4).Draw(t, "fate") {
			case 0:
				out = append(out, typed{holdfast.EventToolDenied, holdfast.ToolDecision{ToolUseID: id}})
			case 1:
				out = append(out, allows(id), holdfast.ToolFinished{ToolUseID: id})
			case 2:
				out = append(out, allows(id), holdfast.ToolStarted{ToolUseID: id}, holdfast.ToolFinished{ToolUseID: id, Content: "x"})
			case 3:
				out = append(out, allows(id), holdfast.ToolStarted{ToolUseID: id}, holdfast.ToolUnknown{ToolUseID: id})
			default:
				out = append(out, allows(id))
			}
		}
	}
	maybeSteer()
	if rapid.IntRange(0, 5).Draw(t, "says") > 0 {
		out = append(out, says(seen(), "done"))
	}
	return append(out, ends(rapid.SampledFrom([]holdfast.EventType{
		holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted,
	}).Draw(t, "end")))
}

// HZ-4: every prefix of a log is a conversation that a model takes, and folding
// on from a prefix gives what folding the whole gives.
func TestHZ4_EveryPrefixFoldsToAValidConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []any
		for range rapid.IntRange(1, 4).Draw(t, "turns") {
			items = append(items, genTurn(t, func() int64 { return int64(len(items)) })...)
		}
		readsOn(t, logOf(items...), func(c *conversation.Conversation, at loop.Conversation) error {
			if !c.Turn.Live && (len(at.Pending) > 0 || len(at.Joined) > 0) {
				return fmt.Errorf("no turn, yet %d calls pending", len(at.Pending))
			}
			return nil
		})
	})
}

// readsOn reads a log with stops at will. At each stop the conversation is valid, as good as one
// read at once, and the caller's: what it does with it is not seen at the next.
func readsOn(t *rapid.T, log []holdfast.Event, check func(*conversation.Conversation, loop.Conversation) error) {
	c, again := new(conversation.Conversation), rapid.Bool().Draw(t, "again")
	for i, e := range log {
		if err := c.Add(e); err != nil {
			t.Fatal(err)
		}
		if i < len(log)-1 && rapid.IntRange(0, 2).Draw(t, "goes on") == 0 {
			continue
		}
		if err := c.Settle(); err != nil {
			t.Fatal(err)
		}
		at := stands(c, again)
		err := valid(at)
		if err == nil {
			err = check(c, at)
		}
		if err != nil {
			t.Fatalf("after %d entries: %v\n%s", i+1, err, render(at.Messages))
		}
		if d := cmp.Diff(stands(foldAll(t, log[:i+1]), again), at); d != "" {
			t.Fatalf("after %d entries the fold depends on its stops:\n%s", i+1, d)
		}
		at.Messages = loop.AppendUser(at.Messages, model.Block{Type: model.Text, Text: "mine"})
		for i := range at.Messages {
			at.Messages[i].Role = "nobody"
		}
	}
}

// No log, however wrong, makes an invalid conversation.
func TestAnyLogFoldsToAValidConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []any
		for range rapid.IntRange(0, 30).Draw(t, "entries") {
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
			items = append(items, rapid.SampledFrom([]any{
				user("x"), steer("y"), begins,
				holdfast.Thinking{Text: "hm"},
				says(int64(len(items)), "x"), says(0, "use:a", "use:b"), says(99, "use:b", "use:b"), says(0),
				asks(id), allows(id),
				holdfast.ToolStarted{ToolUseID: id},
				holdfast.ToolFinished{ToolUseID: id},
				typed{holdfast.EventToolDenied, holdfast.ToolDecision{ToolUseID: id}},
				holdfast.ToolUnknown{ToolUseID: id},
				ends(holdfast.EventTurnCompleted), ends(holdfast.EventTurnInterrupted),
				holdfast.Notice{Code: "x"},
			}).Draw(t, "entry"))
		}
		h := foldAll(t, logOf(items...))
		if c := stands(h, true); valid(c) != nil {
			t.Fatalf("%v\n%s", valid(c), render(c.Messages))
		}
	})
}
