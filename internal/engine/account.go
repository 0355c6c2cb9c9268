package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// account is what a running turn uses up. A model call is reserved before it is
// made, at the most it can cost, so that calls made at once cannot overshoot a
// budget together. Its truth is the log: it is filled from there when the turn
// goes on after a crash. Safe for concurrent use.
type account struct {
	id  holdfast.SessionID
	now func() time.Time

	mu    sync.Mutex
	began time.Time
	// ended is what the session's turns before this one used up.
	ended holdfast.Spent
	// session and turn are the bounds; nil is none.
	session, turn *holdfast.Budget
	used          holdfast.Spent
	reserved      holdfast.Usage
	// parked is how long the turn waited for its provider; until is when the
	// present wait is over.
	parked time.Duration
	until  time.Time
}

// bind replaces the bounds.
func (a *account) bind(session, turn *holdfast.Budget) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session, a.turn = session, turn
}

// reserve sets aside the most that a model call may use. While it is set aside, other
// calls can use only the rest. settle is called once, with the actual usage and whether
// the call answered.
func (a *account) reserve(most holdfast.Usage) (settle func(holdfast.Usage, bool), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if most != most.Clamp() || a.reserved.Add(most).Less(most) != a.reserved {
		// A negative reservation would raise the budget of other calls. One that reaches the
		// largest number could not be taken back exactly.
		return nil, holdfast.Errorf(holdfast.KindInvalid, "budget", "a model call of %d tokens at a cost of %d millionths of a dollar cannot be reserved",
			most.Tokens(), most.CostMicroUSD).WithHint("ask for a shorter answer: a smaller max_tokens")
	}
	for _, b := range []struct {
		of    string
		bound *holdfast.Budget
		spent holdfast.Spent
	}{
		{"turn", a.turn, a.used},
		{"session", a.session, a.ended.Add(a.used)},
	} {
		if b.bound == nil {
			continue
		}
		if err := a.within(b.of, *b.bound, b.spent, most); err != nil {
			return nil, err
		}
	}
	a.reserved = a.reserved.Add(most)
	var once sync.Once
	return func(used holdfast.Usage, answered bool) {
		once.Do(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.reserved = a.reserved.Less(most)
			a.used.Usage = a.used.Add(holdfast.Spent{Usage: used}).Usage
			if answered {
				a.used.Calls++
			}
		})
	}, nil
}

// within compares a bound with what is spent, what is set aside and what is
// asked for; a.mu is held.
func (a *account) within(of string, b holdfast.Budget, spent holdfast.Spent, most holdfast.Usage) error {
	if of == "turn" && b.Turns > 0 && spent.Calls >= b.Turns {
		return over(a.id, of, "turns", fmt.Sprintf("%d model calls", spent.Calls), fmt.Sprint(b.Turns))
	}
	want := spent.Usage.Add(a.reserved).Add(most)
	if b.Tokens > 0 && want.Tokens() > b.Tokens {
		return over(a.id, of, "tokens", fmt.Sprintf("%d spent, up to %d more for the next call", spent.Tokens(), want.Tokens()-spent.Tokens()), fmt.Sprint(b.Tokens))
	}
	if b.USD > 0 {
		if most.UnpricedCalls > 0 {
			return holdfast.Errorf(holdfast.KindDenied, "budget", "the %s has a budget of %g usd, and the price of its model is not known", of, b.USD).
				WithHint("add the model's price to the server's configuration (prices), or choose another model")
		}
		if want.CostMicroUSD > b.MicroUSD() {
			return over(a.id, of, "usd", fmt.Sprintf("%s spent, up to %s more for the next call", dollars(spent.CostMicroUSD), dollars(want.Less(spent.Usage).CostMicroUSD)), dollars(b.MicroUSD()))
		}
	}
	if b.Seconds > 0 {
		ran := a.elapsed()
		if of == "session" {
			ran = time.Duration(holdfast.Sum(int64(ran), int64(spent.Duration())))
		}
		if ran >= b.Duration() {
			return over(a.id, of, "seconds", ran.Round(time.Second).String()+" spent", b.Duration().String())
		}
	}
	return nil
}

// elapsed is how long the turn ran; a.mu is held.
func (a *account) elapsed() time.Duration {
	return max(a.now().Sub(a.began)-a.parked, 0)
}

func over(id holdfast.SessionID, of, name, spent, limit string) error {
	flag := "budget"
	if of == "turn" {
		flag = "turn-budget"
	}
	return holdfast.Errorf(holdfast.KindDenied, "budget", "the %s's budget of %s is used up: %s, the limit is %s", of, name, spent, limit).
		WithHint("raise it: holdfast session update %s --%s %s=N", id, flag, name)
}

func dollars(micro int64) string { return fmt.Sprintf("%.6f usd", float64(micro)/1e6) }

// spent is what the turn used up until now.
func (a *account) spent() holdfast.Spent {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.used
	s.DurationMS = a.elapsed().Milliseconds()
	return s
}

// aside is what open reservations hold.
func (a *account) aside() holdfast.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserved
}

// park notes that the turn waits; the zero time ends the wait.
func (a *account) park(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = until
}

// waited adds a wait that is over.
func (a *account) waited(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked += d
}

// parkedUntil is when the present wait is over; nil when the turn does not wait.
func (a *account) parkedUntil() *time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until.IsZero() {
		return nil
	}
	t := a.until.UTC().Truncate(time.Millisecond)
	return &t
}

// before is what a turn used up before a crash.
func (a *account) before(t *conversation.Turn) {
	used, parked := holdfast.Spent{Usage: t.Failed, Calls: int64(t.Answers)}, time.Duration(0)
	// The broker records each call by itself, so the answers of its agent say nothing new.
	if t.Brokered.Any {
		used.Usage, used.Calls = used.Usage.Add(t.Brokered.Usage), int64(t.Brokered.Answers)
	} else {
		used.Usage = used.Usage.Add(t.Told)
	}
	now := a.now()
	for _, w := range t.Waits {
		if end := minTime(w.Until, now); end.After(w.From) {
			parked += end.Sub(w.From)
		}
	}
	for _, q := range t.Questions {
		// It waits still, and goes on with that.
		parked += now.Sub(q.Asked)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used, a.parked = used, parked
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// recount fills the account of a turn that goes on after a crash from its log, and
// finds the newest message that joined it.
func recount(ctx context.Context, h *host) error {
	return h.Conversation(ctx, func(c *conversation.Conversation) error {
		if c.Turn.ID != h.r.id {
			return nil // it did not begin
		}
		h.acc.before(&c.Turn)
		h.u.mu.Lock()
		defer h.u.mu.Unlock()
		h.r.steerSeq = max(h.r.steerSeq, c.Turn.Steered)
		return nil
	})
}

// Reserve implements runtime.Meter.
func (h *host) Reserve(most holdfast.Usage) (func(holdfast.Usage, bool), error) {
	return h.acc.reserve(most)
}

// Bounded implements runtime.Meter.
func (h *host) Bounded() bool {
	h.acc.mu.Lock()
	defer h.acc.mu.Unlock()
	return h.acc.session != nil || h.acc.turn != nil
}

// parkLook is how often a parked turn looks at the clock: it wakes in time on a
// machine that slept.
const parkLook = time.Minute

// Park implements runtime.Meter. A parked turn gives its box back, is no stuck
// one, and lets go at once when the server shuts down: the next start waits for
// the rest.
func (h *host) Park(ctx context.Context, until time.Time) error {
	began := h.e.cfg.Clock()
	h.acc.park(until)
	defer func() {
		h.alive()
		h.acc.waited(h.e.cfg.Clock().Sub(began))
		h.acc.park(time.Time{})
	}()
	h.giveBack()
	for {
		left := until.Sub(h.e.cfg.Clock())
		if left <= 0 {
			return nil
		}
		t := time.NewTimer(min(left, parkLook, max(h.e.cfg.TurnSilence, time.Millisecond)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-h.e.leaving:
			t.Stop()
			return errLetGo
		}
	}
}

// giveBack releases the box until it is asked for again.
func (h *host) giveBack() {
	h.asking.Lock()
	defer h.asking.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold != nil {
		h.hold.Release()
		h.hold = nil
	}
}

// Usage is what a session used up, the running turn included.
func (e *Engine) Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error) {
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.cfg.Store.Row(ctx, id)
	if err != nil {
		return holdfast.SessionUsage{}, err
	}
	all := row.Spent
	out := holdfast.SessionUsage{
		Usage: all.Usage, Turns: all.Turns, Calls: all.Calls, DurationMS: all.DurationMS,
		Budget: row.Budget, TurnBudget: row.TurnBudget,
	}
	if r := u.running; r != nil {
		now := r.host.acc.spent()
		reserved := r.host.acc.aside()
		out.Running, out.Reserved, all = &now, &reserved, all.Add(now)
	}
	if all.UnpricedCalls == 0 {
		usd := float64(all.CostMicroUSD) / 1e6
		out.CostUSD = &usd
	}
	return out, nil
}

// shown adds to a session what only its running turn knows.
func (e *Engine) shown(s holdfast.Session) holdfast.Session {
	e.mu.Lock()
	u := e.units[s.ID]
	e.mu.Unlock()
	if u == nil {
		return s
	}
	if h := u.host.Load(); h != nil {
		s.ParkedUntil = h.acc.parkedUntil()
		s.PendingApprovals = int(h.waiting.Load())
	}
	return s
}
