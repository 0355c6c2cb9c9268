package hooked_test

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/hooked"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pending"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	session = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")
	turnID  = holdfast.TurnID("01890a5d-ac96-774b-bcce-b302099a8058")
)

// noBox are sessions without a box.
type noBox struct{ *sqlite.Sessions }

func (noBox) Where(context.Context, journal.Row) (cwd, transcript string) { return "/workspace", "" }

func (noBox) Claim(context.Context, holdfast.SessionID, bool) (*pool.Hold, error) {
	return nil, holdfast.Errorf(holdfast.KindDenied, "test", "there is no box")
}

// rig is a session whose server has hooks that are functions.
type rig struct {
	*testing.T
	journal  *journal.Journal
	sessions *sqlite.Sessions
	registry *hook.Registry
	facts    *pending.Facts
	over     error
	// unstored is the error with which permission updates fail, failed the errors that ended the turn.
	unstored error
	failed   []error
	// unloaded is the error with which the hooks of the agent are read.
	unloaded error
}

func newRig(t *testing.T) *rig {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "holdfast.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{T: t, sessions: store.Sessions, registry: new(hook.Registry)}
	r.journal = journal.New(journal.Config{Store: r.sessions, Leases: store.Leases})
	c := journal.NewChange(session)
	c.Create = &journal.Row{Session: holdfast.Session{
		Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, Trust: holdfast.Untrusted, Runtime: "native",
		Model: "scripted", Mode: holdfast.ModeDefault, Tags: []string{},
		CreatedAt: time.UnixMilli(1).UTC(), LastActiveAt: time.UnixMilli(1).UTC(),
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
	r.commit(c)
	return r
}

func (r *rig) commit(c journal.Change) {
	r.Helper()
	if _, err := r.journal.Commit(context.Background(), c); err != nil {
		r.Fatal(err)
	}
}

// denies registers a hook that denies, and returns how often it ran.
func (r *rig) denies(event hook.Event) *int {
	r.Helper()
	n := new(int)
	if _, err := r.registry.Register(hook.Definition{
		Event: event, Name: "guard",
		Func: func(context.Context, hook.Input) (*hook.Output, error) {
			*n++
			return &hook.Output{Verdict: policy.Denied, Reason: "not this"}, nil
		},
	}); err != nil {
		r.Fatal(err)
	}
	return n
}

func (r *rig) hooks() *hooked.Hooks {
	return hooked.New(hooked.Config{
		Installed: hooked.Installed{Registry: r.registry},
		Agent:     func(context.Context, holdfast.VersionID) (hook.Config, error) { return nil, r.unloaded },
		Sessions:  noBox{r.sessions}, Journal: r.journal,
		Go:      func(f func(context.Context)) bool { f(context.Background()); return true },
		NewCall: func() (holdfast.CallID, error) { return "01890a5d-ac96-774b-bcce-b302099a8060", nil },
		Clock:   time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// turn makes the hooks of the turn as a server does that starts now: it knows the log, and no fact
// waits.
func (r *rig) turn() *hooked.Turn {
	r.Helper()
	row, err := r.sessions.Row(context.Background(), session)
	if err != nil {
		r.Fatal(err)
	}
	r.facts = new(pending.Facts)
	t, err := r.hooks().Turn(context.Background(), hooked.TurnConfig{
		Row: row, ID: turnID, Number: 1, Facts: r.facts, Alive: func() error { return r.over },
		Mode: func() holdfast.Mode { return holdfast.ModeDefault },
		Box: func(context.Context) (*sandbox.Box, error) {
			return nil, holdfast.Errorf(holdfast.KindDenied, "test", "there is no box")
		},
		Log: func(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error] {
			return r.journal.Replay(ctx, session, after)
		},
		Updated: func(context.Context, []policy.Update) (*pending.Fact, error) { return nil, r.unstored },
		Fail:    func(err error) { r.failed = append(r.failed, err) },
		Flush:   func(context.Context) error { r.record(); return nil },
	})
	if err != nil {
		r.Fatal(err)
	}
	return t
}

// record commits the facts that wait, with a change of the turn.
func (r *rig) record() {
	r.Helper()
	c := journal.NewChange(session)
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: turnID, Data: holdfast.Notice{Code: "verdict"}}}
	_, done := r.facts.Carry(&c)
	_, err := r.journal.Commit(context.Background(), c)
	if done(err); err != nil {
		r.Fatal(err)
	}
}

// log lists the types of the events after the first.
func (r *rig) log() (out []holdfast.EventType) {
	r.Helper()
	for ev, err := range r.journal.Replay(context.Background(), session, 1) {
		if err != nil {
			r.Fatal(err)
		}
		out = append(out, ev.Type)
	}
	return out
}

func call(id string) policy.Request {
	return policy.Request{Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`), CallID: id}
}

// TestARecordedRunIsNotMadeAgain: a run decides its call in this server and in the next one; a run
// that no change carried is made again after a crash; another call is another run.
func TestARecordedRunIsNotMadeAgain(t *testing.T) {
	r := newRig(t)
	ran := r.denies(hook.PreToolUse)
	denied := func(turn *hooked.Turn, id string, runs int) {
		t.Helper()
		if d := turn.PreToolUse(t.Context(), call(id)); d.Verdict != policy.Denied || *ran != runs {
			t.Fatalf("%+v after %d runs, want %d", d, *ran, runs)
		}
	}
	turn := r.turn()
	denied(turn, "one", 1)
	denied(turn, "one", 1)
	denied(turn, "two", 2)
	if got := r.log(); len(got) != 0 || !r.facts.Waiting() {
		t.Errorf("the runs did not wait for a change of the turn: %v", got)
	}
	denied(r.turn(), "one", 3) // a crash before the commit
	r.record()
	if got := r.log(); len(got) != 2 || got[0] != holdfast.EventHookRan {
		t.Errorf("the run does not stand ahead of its verdict: %v", got)
	}
	turn = r.turn()
	denied(turn, "one", 3)
	denied(turn, "two", 4)
	if r.record(); len(r.log()) != 4 {
		t.Errorf("a known run was recorded again: %v", r.log())
	}
}

// TestTheFirstMessageIsRefusedForGood: the hooks before a message run once, are in the log before the
// runtime reads it, and their refusal holds for the next server.
func TestTheFirstMessageIsRefusedForGood(t *testing.T) {
	r := newRig(t)
	c := journal.NewChange(session)
	message := holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "hello"}}}
	c.Events = []journal.Draft{{Type: holdfast.EventMessageUser, Turn: turnID, Data: message}}
	r.commit(c)
	ran := r.denies(hook.UserPromptSubmit)
	for range 2 {
		if err := r.turn().Begin(t.Context()); !holdfast.IsKind(err, holdfast.KindDenied) || *ran != 1 {
			t.Errorf("%v after %d runs", err, *ran)
		}
		if got := r.log(); len(got) != 3 || got[1] != holdfast.EventHookRan {
			t.Errorf("the run is not in the log: %v", got)
		}
	}
}

// TestNoHookRunsAfterTheTurn: a turn that is over starts none.
func TestNoHookRunsAfterTheTurn(t *testing.T) {
	r := newRig(t)
	ran := r.denies(hook.PreToolUse)
	turn := r.turn()
	r.over = holdfast.Errorf(holdfast.KindConflict, "test", "the turn is over")
	if turn.PreToolUse(t.Context(), call("one")); *ran != 0 || r.facts.Waiting() {
		t.Errorf("%d runs after the turn", *ran)
	}
}

// TestASessionWithoutHooks has a nil Turn, which does nothing.
func TestASessionWithoutHooks(t *testing.T) {
	turn := newRig(t).turn()
	if turn != nil || turn.Has(hook.PreToolUse) || turn.Begin(t.Context()) != nil {
		t.Errorf("a turn without hooks: %v", turn)
	}
	if d := turn.PreToolUse(t.Context(), call("one")); d.Verdict == policy.Denied {
		t.Errorf("%+v", d)
	}
	turn.End(holdfast.TurnCompleted, holdfast.TurnEnded{})
}

// TestOutsideOfATurn: a run is recorded by itself, and hooks for other events are not run.
func TestOutsideOfATurn(t *testing.T) {
	r := newRig(t)
	ran, other := r.denies(hook.SessionPaused), r.denies(hook.SessionEnd)
	hooks := r.hooks()
	hooks.Fire(t.Context(), session, hook.Input{Event: hook.SessionPaused})
	hooks.Fire(t.Context(), "01890a5d-ac96-774b-bcce-b302099a8061", hook.Input{Event: hook.SessionPaused})
	if got := r.log(); *ran != 1 || *other != 0 || len(got) != 1 || got[0] != holdfast.EventHookRan {
		t.Errorf("%d and %d runs, log %v", *ran, *other, got)
	}
}

// TestRunsAreToldFromCalls: the id of a hook's run names its turn.
func TestRunsAreToldFromCalls(t *testing.T) {
	r := newRig(t)
	r.denies(hook.PreToolUse)
	res := r.turn().Fire(t.Context(), hook.Input{Event: hook.PreToolUse, ToolName: "Bash", ToolUseID: "one"})
	if len(res.Runs) != 1 {
		t.Fatalf("%d runs", len(res.Runs))
	}
	id := res.Runs[0].Call
	if !hooked.RunOf(id, turnID) || hooked.RunOf(id, turnID+"x") || hooked.RunOf(holdfast.CallID(session), turnID) {
		t.Errorf("%s is not told to be a run of the turn", id)
	}
}

// TestEachInputHasItsOwnRun: hooks run for each input that an agent asks about under the id of one call, and a verdict
// about one input does not hold for another. No hook runs again for the same input with other blanks and escapes.
func TestEachInputHasItsOwnRun(t *testing.T) {
	r, runs := newRig(t), 0
	for _, e := range []hook.Event{hook.PreToolUse, hook.PermissionRequest} {
		if _, err := r.registry.Register(hook.Definition{Event: e, Func: func(_ context.Context, in hook.Input) (*hook.Output, error) {
			runs++
			if strings.Contains(string(in.ToolInput), "secret") {
				return &hook.Output{Verdict: policy.Denied}, nil
			}
			return &hook.Output{Verdict: policy.Allowed}, nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	turn := r.turn()
	for _, c := range []struct {
		input string
		want  policy.Verdict
		runs  int
	}{
		{`{"file_path":"/workspace/a&b","n":1}`, policy.Allowed, 2},
		{`{"file_path":"/workspace/secret"}`, policy.Denied, 4},
		{`{"n": 1, "file_path": "/workspace/a\u0026b"}`, policy.Allowed, 4},
	} {
		input, want := c.input, c.want
		req := policy.Request{Tool: "Read", Input: json.RawMessage(input), CallID: "one"}
		if d := turn.PreToolUse(t.Context(), req); d.Verdict != want {
			t.Errorf("preToolUse %s: %s, want %s", input, d.Verdict, want)
		}
		d, err := hooked.Approver{Turn: turn, Updates: new([]policy.Update)}.Approve(t.Context(), req, policy.Decision{Verdict: policy.Asked})
		if err != nil || d.Verdict != want {
			t.Errorf("permissionRequest %s: %s %v, want %s", input, d.Verdict, err, want)
		}
		if runs != c.runs {
			t.Errorf("%s: %d runs, want %d", input, runs, c.runs)
		}
	}
}

// TestRulesThatCannotBeStoredEndTheTurn: a call after the hook must not run without the rule that it asked for.
func TestRulesThatCannotBeStoredEndTheTurn(t *testing.T) {
	r := newRig(t)
	r.denies(hook.PostToolUse)
	turn := r.turn()
	r.unstored = holdfast.Errorf(holdfast.KindUnavailable, "test", "the disk is full")
	turn.Fire(t.Context(), hook.Input{Event: hook.PostToolUse, ToolName: "Bash", ToolUseID: "one"})
	if len(r.failed) != 1 || !holdfast.IsKind(r.failed[0], holdfast.KindUnavailable) || r.facts.Waiting() {
		t.Errorf("the turn ended with %v", r.failed)
	}
}

// TestMessagesWithoutAVerdictAreWithheld: at the end of a turn, each message on which no hook has finished gets a record
// that withholds it, also if the hooks cannot be loaded.
func TestMessagesWithoutAVerdictAreWithheld(t *testing.T) {
	r := newRig(t)
	say := func(text string, steer bool) holdfast.UserMessage {
		return holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}, Steer: steer}
	}
	c := journal.NewChange(session)
	c.Events = []journal.Draft{
		{Type: holdfast.EventMessageUser, Turn: turnID, Data: say("hello", false)},
		{Type: holdfast.EventMessageUser, Turn: turnID, Data: say("and this", true)},
		{Type: holdfast.EventMessageUser, Turn: turnID + "x", Data: say("of another turn", false)},
	}
	r.commit(c)
	row, err := r.sessions.Row(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	withheld := func(turn *hooked.Turn) (out []int64) {
		t.Helper()
		drafts, err := r.hooks().Withhold(t.Context(), row, turnID, turn, r.journal.Replay(t.Context(), session, 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range drafts {
			ran := d.Data.(holdfast.HookRan)
			if !hook.Withholds(ran) || d.Turn != turnID || ran.Reason == "" {
				t.Errorf("%+v withholds nothing", ran)
			}
			out = append(out, ran.MessageSeq)
		}
		return out
	}
	if got := withheld(nil); got != nil {
		t.Errorf("without hooks, %v are withheld", got)
	}
	r.unloaded = holdfast.Errorf(holdfast.KindUnavailable, "test", "the disk is gone")
	if got := withheld(nil); !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("with hooks that cannot be loaded, %v are withheld", got)
	}
	r.unloaded = nil
	r.denies(hook.UserPromptSubmit)
	if got := withheld(nil); !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("before a verdict, %v are withheld", got)
	}
	turn := r.turn()
	if err := turn.Begin(t.Context()); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Fatal(err)
	}
	for _, turn := range []*hooked.Turn{turn, nil} {
		if got := withheld(turn); !slices.Equal(got, []int64{3}) {
			t.Errorf("after the first verdict, %v are withheld", got)
		}
	}
}
