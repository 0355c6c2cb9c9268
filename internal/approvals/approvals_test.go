package approvals_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	session = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")
	turn    = holdfast.TurnID("01890a5d-ac96-774b-bcce-b302099a8058")
)

// errLeaving is the error of a question whose server ends.
var errLeaving = errors.New("the server ends")

// rules keeps the rules of each scope under one key.
type rules struct{}

func (rules) Added(context.Context, journal.Row) ([]journal.Rule, error) { return nil, nil }

func (rules) Room(_ context.Context, row journal.Row, scope holdfast.ApprovalScope, _ int) (string, error) {
	return string(scope) + " " + string(row.ID), nil
}

// rig are the questions of a session with a turn that runs.
type rig struct {
	*testing.T
	*approvals.Questions
	store   *sqlite.Store
	journal *journal.Journal
	policy  *policy.Engine
	cfg     approvals.Config
	leaving chan struct{}
	// asked receives the kill points that turns pass.
	asked chan string

	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, now: time.UnixMilli(1_700_000_000_000).UTC(), leaving: make(chan struct{}), asked: make(chan string, 100)}
	var err error
	r.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "holdfast.db"), Clock: r.clock})
	r.ok(err)
	t.Cleanup(func() { r.ok(r.store.Close()) })
	r.journal = journal.New(journal.Config{Store: r.store.Sessions, Leases: r.store.Leases})
	r.policy, err = policy.New(policy.Config{})
	r.ok(err)
	r.cfg = approvals.Config{
		Store: r.store.Approvals, Sessions: r.store.Sessions, Journal: r.journal, Policy: r.policy, Rules: rules{},
		Timeout: time.Hour,
		NewID:   func() (string, error) { return holdfast.NewUUID(time.Now(), rand.Reader) },
		Clock:   r.clock, Log: slog.New(slog.DiscardHandler),
	}
	r.Questions = approvals.New(r.cfg)
	c := journal.NewChange(session)
	c.Create = &journal.Row{Session: holdfast.Session{
		Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, Trust: holdfast.Untrusted, Runtime: "native",
		Model: "scripted", Mode: holdfast.ModeDefault, Tags: []string{}, CreatedAt: r.now, LastActiveAt: r.now,
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
	c.Turns = []journal.TurnChange{{ID: turn, To: holdfast.TurnQueued, Number: 1, MessageSeq: 1}}
	r.commit(c)
	c = journal.NewChange(session)
	c.Events = []journal.Draft{{Type: holdfast.EventTurnStarted, Turn: turn, Data: struct{}{}}}
	c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnQueued, To: holdfast.TurnRunning}}
	r.commit(c)
	return r
}

func (r *rig) clock() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }

func (r *rig) pass(d time.Duration) { r.mu.Lock(); defer r.mu.Unlock(); r.now = r.now.Add(d) }

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) commit(c journal.Change) {
	r.Helper()
	_, err := r.journal.Commit(context.Background(), c)
	r.ok(err)
}

// turn makes the turn's questions, as the present server or the next one does.
func (r *rig) turn(again bool) *approvals.Turn {
	return r.NewTurn(approvals.TurnConfig{
		Session: session, ID: turn, Again: again,
		Log: func(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error] {
			return r.journal.Replay(ctx, session, after)
		},
		Commit: func(ctx context.Context, build func(journal.Row, *journal.Change) error) error {
			_, err := r.journal.CommitAt(ctx, session, build)
			return err
		},
		Policy: func() *policy.Engine { return r.policy },
		Wait:   func() func() { return func() {} }, Leaving: r.leaving, LetGo: errLeaving,
		At: func(point string) { r.asked <- point },
	})
}

// answer is what a call of Approve returned.
type answer struct {
	policy.Decision
	err error
}

func call(id, command string) policy.Request {
	input, _ := json.Marshal(map[string]string{"command": command})
	return policy.Request{Session: session, Mode: holdfast.ModeDefault, Tool: "Bash", Input: input, CallID: id}
}

// approve asks about a call, and returns when the question waits or is answered.
func (r *rig) approve(t *approvals.Turn, req policy.Request) <-chan answer {
	r.Helper()
	out := make(chan answer, 1)
	go func() {
		d, err := t.Approve(context.Background(), req, policy.Decision{Verdict: policy.Asked, By: "mode"})
		out <- answer{d, err}
	}()
	<-r.asked
	return out
}

// questions are the turn's questions in the store, in the order in which they were asked.
func (r *rig) questions() []holdfast.Approval {
	r.Helper()
	p, err := r.store.Approvals.Approvals(context.Background(), journal.ApprovalQuery{Turn: turn, Limit: 100})
	r.ok(err)
	return p.Approvals
}

// events counts the events of a type in the log.
func (r *rig) events(typ holdfast.EventType) (n int) {
	r.Helper()
	for ev, err := range r.journal.Replay(context.Background(), session, 0) {
		r.ok(err)
		if ev.Type == typ {
			n++
		}
	}
	return n
}

// TestAQuestionIsAskedOnce: the next server waits for the answer to the question that the former one
// asked, and an answer that came in between decides the call.
func TestAQuestionIsAskedOnce(t *testing.T) {
	r := newRig(t)
	first := r.approve(r.turn(false), call("use", "ls"))
	if r.events(holdfast.EventApprovalAsked) != 1 {
		t.Fatal("a turn waits for an answer to a question that is not in the log")
	}
	close(r.leaving)
	if got := <-first; !errors.Is(got.err, errLeaving) {
		t.Fatalf("the server ends: %+v", got)
	}
	r.leaving = make(chan struct{})
	r.Questions = approvals.New(r.cfg)
	second := r.approve(r.turn(true), call("use", "ls"))
	asked := r.questions()
	if len(asked) != 1 || r.events(holdfast.EventApprovalAsked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	_, err := r.AnswerApproval(t.Context(), asked[0].ID, holdfast.AnswerApproval{Decision: "allow"}, "me")
	r.ok(err)
	if got := <-second; got.err != nil || got.Verdict != policy.Allowed {
		t.Errorf("%+v", got)
	}
	r.Questions = approvals.New(r.cfg)
	if got := <-r.approve(r.turn(true), call("use", "ls")); got.err != nil || got.Verdict != policy.Allowed {
		t.Errorf("after the answer: %+v", got)
	}
	if n := len(r.questions()); n != 1 {
		t.Errorf("%d questions after the answer", n)
	}
}

// TestAnAnswerDecidesOneCall: a second call with the same id and input is another question, and so
// is one with another input.
func TestAnAnswerDecidesOneCall(t *testing.T) {
	r := newRig(t)
	turn := r.turn(false)
	for n, command := range []string{"ls", "ls", "rm -rf x"} {
		got := r.approve(turn, call("use", command))
		asked := r.questions()
		if len(asked) != n+1 {
			t.Fatalf("call %d: %d questions", n, len(asked))
		}
		_, err := r.AnswerApproval(t.Context(), asked[n].ID, holdfast.AnswerApproval{Decision: "deny", Reason: "no"}, "me")
		r.ok(err)
		if d := <-got; d.err != nil || d.Verdict != policy.Denied {
			t.Errorf("call %d: %+v", n, d)
		}
		<-r.asked // "answered"
	}
}

// TestAnAnswerInTheLogIsUsed: an answer decides no call of the next server once the log has the
// decision that it made.
func TestAnAnswerInTheLogIsUsed(t *testing.T) {
	r := newRig(t)
	got := r.approve(r.turn(false), call("use", "ls"))
	_, err := r.AnswerApproval(t.Context(), r.questions()[0].ID, holdfast.AnswerApproval{Decision: "allow"}, "me")
	r.ok(err)
	<-got
	<-r.asked // "answered"
	c := journal.NewChange(session)
	c.Events = []journal.Draft{{Type: holdfast.EventToolAllowed, Turn: turn, Data: holdfast.ToolDecision{ToolUseID: "use"}}}
	r.commit(c)
	r.Questions = approvals.New(r.cfg)
	again := r.approve(r.turn(true), call("use", "ls"))
	if n := len(r.questions()); n != 2 {
		t.Errorf("%d questions for two calls", n)
	}
	close(r.leaving)
	<-again
}

// TestAnAnswerIsForItsInput: what a person said about one input decides no call with another one,
// also where the model gave both the same id; a question that waits for an answer about the former
// input ends.
func TestAnAnswerIsForItsInput(t *testing.T) {
	for _, answered := range []bool{true, false} {
		r := newRig(t)
		first := r.approve(r.turn(false), call("use", "ls"))
		want := holdfast.ApprovalExpired
		if answered {
			_, err := r.AnswerApproval(t.Context(), r.questions()[0].ID, holdfast.AnswerApproval{Decision: "allow"}, "me")
			r.ok(err)
			<-first
			<-r.asked // "answered"
			want = holdfast.ApprovalAllowed
		}
		r.Questions = approvals.New(r.cfg)
		second := r.approve(r.turn(true), call("use", "rm -rf x"))
		asked := r.questions()
		if len(asked) != 2 || asked[0].State != want || asked[1].State != holdfast.ApprovalPending {
			t.Errorf("answered %t: %+v", answered, asked)
		}
		close(r.leaving)
		if got := <-second; !errors.Is(got.err, errLeaving) {
			t.Errorf("answered %t: the other input is decided: %+v", answered, got)
		}
		if !answered {
			<-first
		}
	}
}

// TestOneQuestionForManyThatWait: whoever waits for the answer about the same call waits for the same
// question.
func TestOneQuestionForManyThatWait(t *testing.T) {
	r := newRig(t)
	turn := r.turn(false)
	var waiting []<-chan answer
	for range 3 {
		waiting = append(waiting, r.approve(turn, call("use", "ls")))
	}
	asked := r.questions()
	if len(asked) != 1 {
		t.Errorf("%d questions", len(asked))
	}
	for _, a := range asked {
		_, err := r.AnswerApproval(t.Context(), a.ID, holdfast.AnswerApproval{Decision: "allow"}, "me")
		r.ok(err)
	}
	for _, w := range waiting {
		if got := <-w; got.err != nil || got.Verdict != policy.Allowed {
			t.Errorf("%+v", got)
		}
	}
}

// TestAQuestionHasOneAnswer: of many answers one is taken, and the others are a conflict.
func TestAQuestionHasOneAnswer(t *testing.T) {
	r := newRig(t)
	got := r.approve(r.turn(false), call("use", "ls"))
	id := r.questions()[0].ID
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			decision := []string{"allow", "deny"}[i%2]
			_, err := r.AnswerApproval(context.Background(), id, holdfast.AnswerApproval{Decision: decision}, decision)
			errs <- err
		}()
	}
	taken := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			taken++
		} else if !holdfast.IsKind(err, holdfast.KindConflict) {
			t.Errorf("a second answer: %v", err)
		}
	}
	d, a := <-got, r.questions()[0]
	if taken != 1 || r.events(holdfast.EventApprovalAnswered) != 1 {
		t.Errorf("%d answers were taken, %d recorded", taken, r.events(holdfast.EventApprovalAnswered))
	}
	if (d.Verdict == policy.Allowed) != (a.State == holdfast.ApprovalAllowed) || d.err != nil {
		t.Errorf("the call is %+v, the question %s", d, a.State)
	}
}

// TestAQuestionExpires: after its time it is a denial, and an answer is too late, whether or not the
// loop that ends such questions has come to it.
func TestAQuestionExpires(t *testing.T) {
	for name, end := range map[string]func(*rig, holdfast.ApprovalID){
		"by the loop": func(r *rig, _ holdfast.ApprovalID) { r.ok(r.ExpireDue(context.Background())) },
		"by a late answer": func(r *rig, id holdfast.ApprovalID) {
			_, err := r.AnswerApproval(context.Background(), id, holdfast.AnswerApproval{Decision: "allow"}, "me")
			if !holdfast.IsKind(err, holdfast.KindConflict) {
				r.Errorf("a late answer: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			got := r.approve(r.turn(false), call("use", "ls"))
			r.pass(time.Hour - time.Minute)
			r.ok(r.ExpireDue(t.Context()))
			if a := r.questions()[0]; a.State != holdfast.ApprovalPending {
				t.Fatalf("before its time: %s", a.State)
			}
			r.pass(time.Minute)
			end(r, r.questions()[0].ID)
			if d := <-got; d.err != nil || d.Verdict != policy.Denied {
				t.Errorf("%+v", d)
			}
			r.ok(r.ExpireDue(t.Context()))
			if a := r.questions()[0]; a.State != holdfast.ApprovalExpired || r.events(holdfast.EventApprovalExpired) != 1 {
				t.Errorf("%s, %d events", a.State, r.events(holdfast.EventApprovalExpired))
			}
		})
	}
}

// TestATurnLeavesNoQuestion: the change that ends a turn ends its questions.
func TestATurnLeavesNoQuestion(t *testing.T) {
	r := newRig(t)
	turn := r.turn(false)
	got := r.approve(turn, call("use", "ls"))
	c := journal.NewChange(session)
	ended, err := turn.End(t.Context(), &c)
	r.ok(err)
	r.commit(c)
	ended()
	if d := <-got; d.err != nil || d.Verdict != policy.Denied || r.questions()[0].State != holdfast.ApprovalExpired {
		t.Errorf("%+v, %s", d, r.questions()[0].State)
	}
}

// TestAnAnswerForTheSessionGrantsItsRules, each once.
func TestAnAnswerForTheSessionGrantsItsRules(t *testing.T) {
	r := newRig(t)
	got := r.approve(r.turn(false), call("use", "git status"))
	req := holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession}
	req.Rules = []string{"Bash(git *)", "Bash(git *)"}
	_, err := r.AnswerApproval(t.Context(), r.questions()[0].ID, req, "me")
	r.ok(err)
	<-got
	for ev, err := range r.journal.Replay(t.Context(), session, 0) {
		r.ok(err)
		var d holdfast.RulesChanged
		if ev.Type != holdfast.EventRulesChanged {
			continue
		}
		if r.ok(ev.Decode(&d)); len(d.Changes) != 1 {
			t.Errorf("the log says %+v", d)
		}
	}
	kept, err := r.store.Approvals.Rules(t.Context(), "session "+string(session))
	r.ok(err)
	var texts []string
	for _, k := range kept {
		texts = append(texts, k.Rule)
	}
	if diff := cmp.Diff([]string{"Bash(git *)"}, texts); diff != "" {
		t.Error(diff)
	}
}

// TestInputThatCannotBeReadIsDenied without a question.
func TestInputThatCannotBeReadIsDenied(t *testing.T) {
	r := newRig(t)
	req := call("use", "ls")
	req.Input = json.RawMessage(`{"command":`)
	d, err := r.turn(false).Approve(t.Context(), req, policy.Decision{})
	if err != nil || d.Verdict != policy.Denied || len(r.questions()) != 0 {
		t.Errorf("%+v, %v, %d questions", d, err, len(r.questions()))
	}
}

// TestQuestionsOfAllPages: a turn's end and an expiry reach all questions, although large inputs fill more than one page of
// the store.
func TestQuestionsOfAllPages(t *testing.T) {
	large, err := json.Marshal(map[string]string{"command": strings.Repeat("x", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	const asked = 6 // a page of the store ends at 4 MiB of input
	for _, ends := range []string{"the turn", "the time"} {
		r := newRig(t)
		c := journal.NewChange(session)
		for i := range asked {
			at := r.clock().Add(time.Minute)
			id, err := r.cfg.NewID()
			r.ok(err)
			c.Approvals = append(c.Approvals, journal.ApprovalChange{Ask: &holdfast.Approval{
				ID: holdfast.ApprovalID(id), Session: session, Turn: turn, ToolUseID: fmt.Sprint("use-", i), Tool: "Bash", Input: large, InputHash: fmt.Sprint(i), ExpiresAt: &at,
			}})
		}
		r.commit(c)
		if page, err := r.store.Approvals.Approvals(t.Context(), journal.ApprovalQuery{Turn: turn, Limit: 1000}); err != nil || page.Next == "" {
			t.Fatalf("one page has all %d questions: %v", len(page.Approvals), err)
		}
		if ends == "the turn" {
			end := journal.NewChange(session)
			ended, err := r.turn(true).End(t.Context(), &end)
			r.ok(err)
			r.commit(end)
			ended()
		} else {
			r.pass(time.Hour)
			r.ok(r.ExpireDue(t.Context()))
		}
		left, err := r.store.Approvals.Approvals(t.Context(), journal.ApprovalQuery{Turn: turn, State: holdfast.ApprovalPending})
		if r.ok(err); len(left.Approvals) > 0 {
			t.Errorf("%s ended, and at least %d of %d questions are pending", ends, len(left.Approvals), asked)
		}
	}
}
