package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/obs"
)

// WS-R85, WS-R86, WS-R89, WS-P1, WS-P17.
func TestTurnIsDurableBeforeItIsAnswered(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{Title: "one"})
	turn := w.send(id, "wait")
	if turn.Status != holdfast.TurnRunning || turn.Number != 1 || turn.Text != "wait" {
		t.Errorf("turn = %+v", turn)
	}
	want := []holdfast.EventType{holdfast.EventSessionCreated, holdfast.EventMessageUser, holdfast.EventTurnStarted}
	if d := cmp.Diff(want, w.types(id)); d != "" {
		t.Error(d)
	}
	p.wait(t)
	close(p.release)
	got := w.ended(id, turn.ID)
	if got.Status != holdfast.TurnCompleted || got.Result != "re: wait" || got.StopReason != "end_turn" {
		t.Errorf("turn = %+v", got)
	}
	want = append(want, holdfast.EventMessageAssistant, holdfast.EventTurnCompleted)
	if d := cmp.Diff(want, w.types(id)); d != "" {
		t.Error(d)
	}
	s, err := w.Session(t.Context(), id)
	if err != nil || s.CompletedTurns != 1 || s.LastSeq != 5 {
		t.Errorf("session = %+v, %v", s, err)
	}
}

// WS-R52.
func TestASH17SecondMessageIsQueued(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	first := w.send(id, "wait")
	second := w.send(id, "two")
	third := w.send(id, "three")
	if second.Status != holdfast.TurnQueued || second.QueuePosition != 1 || third.QueuePosition != 2 {
		t.Errorf("second = %+v, third = %+v", second, third)
	}
	close(p.release)
	for i, turn := range []holdfast.Turn{first, second, third} {
		if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Number != int64(i)+1 {
			t.Errorf("turn %d = %+v", i, got)
		}
	}
	if got := w.ended(id, third.ID); got.Text != "three" || got.Result != "re: three" {
		t.Errorf("third = %+v", got)
	}
}

// TestMessagesOfParts: a message of parts keeps them in the log, also where it waits for its turn
// or joins one; anything else than texts is refused.
func TestMessagesOfParts(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Parts: []holdfast.Part{{Type: "image"}}})
	w.wantKind(err, holdfast.KindInvalid)
	w.send(id, "wait")
	p.wait(t)
	parts := []holdfast.Part{{Type: holdfast.PartText, Text: "one"}, {Type: holdfast.PartText, Text: "two"}}
	queued, err := w.Send(t.Context(), id, holdfast.SendMessage{Parts: parts})
	if err != nil || queued.Turn.Text != "one\n\ntwo" {
		t.Errorf("queued = %+v, %v", queued, err)
	}
	if _, err := w.Send(t.Context(), id, holdfast.SendMessage{Parts: parts, Mode: string(holdfast.SendSteer)}); err != nil {
		t.Error(err)
	}
	close(p.release)
	if got := w.ended(id, queued.Turn.ID); got.Text != "one\n\ntwo" || got.Result != "re: one\n\ntwo" {
		t.Errorf("turn = %+v", got)
	}
	whole := 0
	for _, ev := range w.log(id) {
		var m holdfast.UserMessage
		if (ev.Type == holdfast.EventMessageUser || ev.Type == holdfast.EventTurnQueued) && ev.Decode(&m) == nil && slices.Equal(m.Parts, parts) {
			whole++
		}
	}
	if whole != 3 {
		t.Errorf("%d of 3 messages have their parts:\n%s", whole, w.dump(id))
	}
}

func TestASH19InterruptEndsTheTurnAndTheSessionGoesOn(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	if _, err := w.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Errorf("turn = %+v", got)
	}
	_, err := w.Interrupt(t.Context(), id)
	w.wantKind(err, holdfast.KindConflict)
	next := w.send(id, "hello")
	if got := w.ended(id, next.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("next = %+v", got)
	}
}

func TestInterruptingMessageRunsNext(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	first := w.send(id, "wait")
	p.wait(t)
	second := w.sendAs(id, holdfast.SendMessage{Text: "now this", Mode: "interrupt"})
	if got := w.ended(id, first.ID); got.Status != holdfast.TurnInterrupted {
		t.Errorf("first = %+v", got)
	}
	if got := w.ended(id, second.ID); got.Status != holdfast.TurnCompleted || got.Result != "re: now this" {
		t.Errorf("second = %+v", got)
	}
}

func TestSteeringMessageThatComesWithTheEndRunsTheTurnAgain(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	steered := w.sendAs(id, holdfast.SendMessage{Text: "and also", Mode: "steer"})
	if steered.ID != turn.ID {
		t.Errorf("a steering message made turn %s of its own", steered.ID)
	}
	close(p.release)
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "re: and also" {
		t.Errorf("turn = %+v\n%s", got, w.dump(id))
	}
	if n := p.count(turn.ID); n != 2 {
		t.Errorf("the turn ran %d times, want 2", n)
	}
}

// WS-P17, WS-N13.
func TestFailedTurnLeavesTheSessionUsable(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "fail")
	got := w.ended(id, turn.ID)
	if got.Status != holdfast.TurnFailed || got.Error != "model: no key" {
		t.Errorf("turn = %+v", got)
	}
	var end holdfast.TurnEnded
	log := w.log(id)
	if err := log[len(log)-1].Decode(&end); err != nil || end.Kind != holdfast.KindUnauthenticated || end.Hint != "set one" {
		t.Errorf("turn.failed = %+v, %v", end, err)
	}
	if s, _ := w.Session(t.Context(), id); s.Status != holdfast.StatusActive {
		t.Errorf("status = %s", s.Status)
	}
	next := w.send(id, "hello")
	w.ended(id, next.ID)
}

func TestIdempotencyKeySendsOnce(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	msg := holdfast.SendMessage{Text: "once", Key: "k1"}
	one, err := w.Send(t.Context(), id, msg)
	if err != nil {
		t.Fatal(err)
	}
	w.ended(id, one.Turn.ID)
	two, err := w.Send(t.Context(), id, msg)
	if err != nil {
		t.Fatal(err)
	}
	if !two.Duplicate || two.Turn.ID != one.Turn.ID || two.Seq != one.Seq {
		t.Errorf("second send = %+v, first = %+v", two, one)
	}
	parts := []holdfast.Part{{Type: holdfast.PartText, Text: "once"}}
	three, err := w.Send(t.Context(), id, holdfast.SendMessage{Parts: parts, Key: "k1"})
	if err != nil || !three.Duplicate || three.Turn.ID != one.Turn.ID {
		t.Errorf("the same message in parts = %+v, %v", three, err)
	}
	_, err = w.Send(t.Context(), id, holdfast.SendMessage{Parts: append(parts, parts...), Key: "k1"})
	w.wantKind(err, holdfast.KindConflict)
	msg.Text = "something else"
	_, err = w.Send(t.Context(), id, msg)
	w.wantKind(err, holdfast.KindConflict)
	turns, err := w.Turns(t.Context(), id, 0, 0)
	if err != nil || len(turns) != 1 {
		t.Errorf("turns = %+v, %v", turns, err)
	}
}

func TestRunningTurnGoesOnAfterRestart(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	queued := w.send(id, "two")
	p.wait(t)
	before := len(w.log(id))
	w.stop(false)
	w.start()
	if got := len(w.log(id)); got != before {
		t.Errorf("the stop wrote %d events:\n%s", got-before, w.dump(id))
	}
	p.wait(t)
	close(p.release)
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	if got := w.ended(id, queued.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("queued = %+v", got)
	}
	if n := p.count(turn.ID); n != 2 {
		t.Errorf("the runtime ran %d times, want 2", n)
	}
}

func TestWatchdogEndsASilentTurn(t *testing.T) {
	for _, text := range []string{"wait", "deaf"} {
		t.Run(text, func(t *testing.T) {
			p := newPuppet()
			w, c := watched(t, p)
			id := w.create(holdfast.CreateSession{})
			turn := w.send(id, text)
			p.wait(t)
			until(t, func() bool {
				c.move(silence + grace)
				got, err := w.Turn(t.Context(), id, turn.ID)
				return err == nil && got.Status.Terminal()
			})
			got := w.ended(id, turn.ID)
			if got.Status != holdfast.TurnFailed {
				t.Errorf("turn = %+v", got)
			}
			next := w.send(id, "hello")
			if got := w.ended(id, next.ID); got.Status != holdfast.TurnCompleted {
				t.Errorf("next = %+v", got)
			}
			close(p.release)
		})
	}
}

func TestDrainRefusesAndWaits(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "wait")
	p.wait(t)
	drained := make(chan error, 1)
	go func() { drained <- w.Drain(t.Context()) }()
	until(t, func() bool { return w.Health(t.Context()).Status == "draining" })
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "late"})
	w.wantKind(err, holdfast.KindUnavailable)
	select {
	case err := <-drained:
		t.Fatalf("drained with a turn running: %v", err)
	default:
	}
	close(p.release)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}

func TestBadMessages(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{})
	no := false
	for name, c := range map[string]struct {
		msg  holdfast.SendMessage
		kind holdfast.Kind
	}{
		"empty":    {holdfast.SendMessage{Text: "  \n"}, holdfast.KindInvalid},
		"mode":     {holdfast.SendMessage{Text: "x", Mode: "shout"}, holdfast.KindInvalid},
		"nul":      {holdfast.SendMessage{Text: "a\x00b"}, holdfast.KindInvalid},
		"not utf8": {holdfast.SendMessage{Text: "a\xffb"}, holdfast.KindInvalid},
		"large":    {holdfast.SendMessage{Text: string(slices.Repeat([]byte("x"), holdfast.MaxText+1))}, holdfast.KindTooLarge},
	} {
		_, err := w.Send(t.Context(), id, c.msg)
		if !holdfast.IsKind(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := len(w.log(id)); got != 1 {
		t.Errorf("refused messages left %d events", got-1)
	}
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "x", Resume: &no})
	w.wantKind(err, holdfast.KindConflict)
	_, err = w.Send(t.Context(), "01890a5d-ac96-774b-bcce-b302099a8057", holdfast.SendMessage{Text: "x"})
	w.wantKind(err, holdfast.KindNotFound)
}

// until polls a condition.
func until(t testing.TB, ok func() bool) {
	t.Helper()
	if !eventually(ok) {
		t.Fatal("the condition never came true")
	}
}

func eventually(ok func() bool) bool {
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			return false
		case <-tick.C:
		}
	}
	return true
}

// TestAFailedTurnIsLogged at a level that is on, by the ids of the session, the turn
// and the request that started it, also when it had to wait for its turn.
func TestAFailedTurnIsLogged(t *testing.T) {
	var out lockedBuffer
	log, err := obs.NewLogger(&out, "json", "info")
	if err != nil {
		t.Fatal(err)
	}
	p := newPuppet()
	w := newWorld(t, p, func(c *engine.Config) { c.Log = log })
	id := w.create(holdfast.CreateSession{})
	send := func(request, text string) holdfast.TurnID {
		sent, err := w.Send(obs.WithRequestID(t.Context(), request), id, holdfast.SendMessage{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return sent.Turn.ID
	}
	first := send("r-0", "wait")
	p.wait(t)
	failing := send("r-1", "fail")
	close(p.release)
	w.ended(id, first)
	w.ended(id, failing)
	w.stop(true)
	want := fmt.Sprintf(`"level":"WARN","msg":"a turn failed","session_id":%q,"turn_id":%q,"kind":"unauthenticated","error":"model: no key","request_id":"r-1"}`, id, failing)
	if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "r-0") {
		t.Errorf("want %s in\n%s", want, got)
	}
}

// lockedBuffer is a buffer for many writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
