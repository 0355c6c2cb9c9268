package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	mathrand "math/rand/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/internal/engine"
	agentloop "github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
)

// pricey sells a token for a dollar, and asks nobody.
type pricey struct{}

func (pricey) Provider(string) string { return "" }

func (pricey) Price(m string, u holdfast.Usage) holdfast.Usage {
	if m == "other" {
		u.UnpricedCalls = 1
		return u
	}
	u.CostMicroUSD = u.Tokens() * 1_000_000
	return u
}

// budgeted is a world in which each answer may have ten tokens.
func budgeted(t *testing.T, tune func(*engine.Config)) *world {
	t.Helper()
	rt, err := native.New(native.Config{
		Provider: scripted.New(), Now: time.Now, Rand: mathrand.Float64, MaxTokens: 10, Book: pricey{}, Retry: agentloop.Retry{Base: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, rt, tune)
}

// answer is a message that is answered at a price of n tokens in all.
func answer(n int) string {
	return fmt.Sprintf(`<script>[{"say":"x","usage":{"input_tokens":%d}}]</script>`, n)
}

func failedFor(t *testing.T, turn holdfast.Turn, of ...string) {
	t.Helper()
	if turn.Status != holdfast.TurnFailed {
		t.Fatalf("turn %+v did not fail", turn)
	}
	for _, s := range of {
		if !strings.Contains(turn.Error, s) {
			t.Errorf("%q does not say %q", turn.Error, s)
		}
	}
}

func TestBudgetsRefuseBeforeTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		session, turn *holdfast.Budget
		model         string
		says          string
	}{
		"tokens":          {session: &holdfast.Budget{Tokens: 9000}, says: "the session's budget of tokens"},
		"usd":             {session: &holdfast.Budget{USD: 9000}, says: "the session's budget of usd"},
		"turn tokens":     {turn: &holdfast.Budget{Tokens: 100}, says: "the turn's budget of tokens"},
		"unpriced":        {turn: &holdfast.Budget{USD: 1000}, model: "other", says: "the price of its model is unknown"},
		"time of session": {session: &holdfast.Budget{Seconds: 1e-9}, says: "budget of seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			w := budgeted(t, nil)
			id := w.create(holdfast.CreateSession{Model: c.model, Budget: c.session, TurnBudget: c.turn})
			first := w.ended(id, w.send(id, answer(8900)).ID)
			if first.Status == holdfast.TurnCompleted {
				// The next call would overshoot: up to ten tokens, and the request itself.
				first = w.ended(id, w.send(id, "again").ID)
			}
			failedFor(t, first, c.says)
			for _, ev := range w.log(id) {
				if ev.Type == holdfast.EventTurnFailed && !strings.Contains(string(ev.Data), `"denied"`) {
					t.Errorf("%s", ev.Data)
				}
			}
		})
	}
}

func TestBudgetOfModelCallsAndTurns(t *testing.T) {
	w := budgeted(t, nil)
	id := w.create(holdfast.CreateSession{Budget: &holdfast.Budget{Turns: 2}, TurnBudget: &holdfast.Budget{Turns: 2}})
	script := `<script>[{"tool":"Nope"},{"tool":"Nope"},{"say":"x"}]</script>`
	turn := w.ended(id, w.send(id, script).ID)
	failedFor(t, turn, "the turn's budget of turns", "2 model calls")
	msg := holdfast.SendMessage{Text: "hi", Key: "k"}
	w.ended(id, w.sendAs(id, msg).ID)
	// The same message again is not a third turn.
	if sent, err := w.Send(t.Context(), id, msg); err != nil || !sent.Duplicate {
		t.Error(sent, err)
	}
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "more"})
	w.wantKind(err, holdfast.KindDenied)
	if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Budget: &holdfast.Budget{Turns: 3}}); err != nil {
		t.Fatal(err)
	}
	w.ended(id, w.send(id, "more").ID)
	_, err = w.Update(t.Context(), id, holdfast.UpdateSession{Budget: &holdfast.Budget{USD: -1}})
	w.wantKind(err, holdfast.KindInvalid)
}

// What is spent is the sum of the log, whoever ran the turns.
func TestSpentOutlivesTheServer(t *testing.T) {
	w := budgeted(t, func(c *engine.Config) { c.Defaults.Budget = holdfast.Budget{USD: 7000, Tokens: 1 << 20} })
	id := w.create(holdfast.CreateSession{})
	w.ended(id, w.send(id, answer(100)).ID)
	slow := w.send(id, `<script>[{"tool":"Nope","usage":{"input_tokens":50}},{"say":"late","delay_ms":60000}]</script>`)
	until(t, func() bool { return strings.Contains(w.dump(id), `"stop_reason":"tool_use"`) })
	w.restart()
	until(t, func() bool {
		use, err := w.Usage(t.Context(), id)
		return err == nil && use.Running != nil && use.Running.Calls == 1
	})
	use, err := w.Usage(t.Context(), id)
	if err != nil || use.Usage.InputTokens != 100 || use.Running.InputTokens != 50 || *use.CostUSD != 150 || use.Budget.USD != 7000 {
		t.Fatalf("%+v %v", use, err)
	}
	if _, err := w.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.ended(id, slow.ID)
	s, err := w.Session(t.Context(), id)
	if err != nil || s.Spent.InputTokens != 150 || s.Spent.Calls != 2 || s.Spent.Turns != 2 || s.Spent.CostMicroUSD != 150e6 {
		t.Errorf("%+v %v", s.Spent, err)
	}
	if got := w.dump(id); strings.Count(got, " usage {") != 2 {
		t.Error(got)
	}
}

// A parked turn survives the server, shows when it wakes, can be interrupted, and
// holds up no shutdown.
func TestParkedTurnOutlivesTheServer(t *testing.T) {
	c := newClock()
	rt, err := native.New(native.Config{Provider: scripted.New(), Now: c.now, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, rt, func(cfg *engine.Config) { cfg.Clock, cfg.Turns.Silence = c.now, silence })
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, `<script>[{"error":"rate_limit","retry_after":3600},{"say":"awake"}]</script>`)
	parked := func() bool {
		s, err := w.Session(t.Context(), id)
		return err == nil && s.ParkedUntil != nil && s.ParkedUntil.Equal(c.start.Add(time.Hour).UTC().Truncate(time.Millisecond))
	}
	until(t, parked)
	c.move(30 * time.Minute)
	c.looked(t)
	c.looked(t)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Drain(ctx); err != nil || time.Since(began) > patience/2 {
		t.Fatal(err)
	}
	w.restart()
	until(t, parked)
	c.move(31 * time.Minute)
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "awake" {
		t.Errorf("%+v\n%s", got, w.dump(id))
	}
	if got := w.dump(id); strings.Contains(got, "model.reissued") || strings.Count(got, "model.parked") != 1 {
		t.Error(got)
	}
	turn = w.send(id, `<script>[{"error":"rate_limit","retry_after":3600},{"say":"awake"}]</script>`)
	until(t, func() bool { s, _ := w.Session(t.Context(), id); return s.ParkedUntil != nil })
	if s, err := w.Interrupt(t.Context(), id); err != nil || s.ParkedUntil != nil {
		t.Error(s, err)
	}
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Errorf("%+v", got)
	}
}
