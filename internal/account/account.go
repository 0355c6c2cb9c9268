// Package account adds up the usage of a running turn and keeps it within its budgets: tokens,
// cost, model calls and time.
//
// The engine imports it; it imports the vocabulary and conversation. Invariant (HZ-24): a model call is
// admitted only if the usage so far, all open reservations and its own reservation together stay within
// each budget of tokens, cost and calls, and if the time of each budget is not over.
package account

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// Account is the usage of a running turn. Each model call is reserved before it is made, at the
// most that it can cost, so that concurrent calls cannot exceed a budget together. After a crash
// the account is filled from the log. Safe for concurrent use.
type Account struct {
	id  holdfast.SessionID
	now func() time.Time

	mu    sync.Mutex
	began time.Time
	// ended is the usage of the session's earlier turns.
	ended holdfast.Spent
	// session and turn are the budgets; nil means none.
	session, turn *holdfast.Budget
	used          holdfast.Spent
	// reserved is the sum of the open reservations, open their number.
	reserved holdfast.Usage
	open     int64
	// parked is how long the turn has waited for its provider or for people; until is when its
	// current wait for the provider is over, zero if it does not wait.
	parked time.Duration
	until  time.Time
}

// Config configures the account of a turn. Nil budgets do not limit.
type Config struct {
	Session holdfast.SessionID
	Now     func() time.Time
	// Began is when the turn began, Ended the usage of the session's earlier turns. OfSession and Of
	// are the budgets of the session and of the turn.
	Began         time.Time
	Ended         holdfast.Spent
	OfSession, Of *holdfast.Budget
}

// New returns the account of a turn without any usage.
func New(c Config) *Account {
	return &Account{id: c.Session, now: c.Now, began: c.Began, ended: c.Ended, session: c.OfSession, turn: c.Of}
}

// Bind replaces the budgets.
func (a *Account) Bind(session, turn *holdfast.Budget) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session, a.turn = session, turn
}

// Bounded reports whether the session or the turn has a budget.
func (a *Account) Bounded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session != nil || a.turn != nil
}

// Reserve reserves the most tokens and cost that a model call may use, and the call itself, which other calls
// then cannot use, or refuses the call. Time is not reserved: a call may begin until the time of a budget is
// over. The caller calls settle once, with the actual usage and whether the call was answered.
func (a *Account) Reserve(most holdfast.Usage) (settle func(holdfast.Usage, bool), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if most != most.Clamp() || a.reserved.Add(most).Less(most) != a.reserved {
		// A negative reservation would raise the budget of other calls. A reservation that brings the sum
		// to the largest number could not be subtracted exactly again.
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
	a.open++
	var once sync.Once
	return func(used holdfast.Usage, answered bool) {
		once.Do(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.reserved = a.reserved.Less(most)
			a.open--
			a.used.Usage = a.used.Add(holdfast.Spent{Usage: used}).Usage
			if answered {
				a.used.Calls++
			}
		})
	}, nil
}

// within returns an error if the spent usage, the open reservations and the new call together exceed a budget, if its
// time is over, or if it limits the cost of a model without a known price. The caller holds a.mu.
func (a *Account) within(of string, b holdfast.Budget, spent holdfast.Spent, most holdfast.Usage) error {
	if calls := spent.Calls + a.open; of == "turn" && b.Turns > 0 && calls >= b.Turns {
		return Over(a.id, of, "turns", fmt.Sprintf("%d model calls", calls), fmt.Sprint(b.Turns))
	}
	want := spent.Usage.Add(a.reserved).Add(most)
	if b.Tokens > 0 && want.Tokens() > b.Tokens {
		return Over(a.id, of, "tokens", fmt.Sprintf("%d spent, up to %d more for the next call", spent.Tokens(), want.Tokens()-spent.Tokens()), fmt.Sprint(b.Tokens))
	}
	if b.USD > 0 {
		if most.UnpricedCalls > 0 {
			return holdfast.Errorf(holdfast.KindDenied, "budget", "the %s has a budget of %g US dollars, but the price of its model is unknown", of, b.USD).
				WithHint("add the model's price to the server's configuration (prices), or choose another model")
		}
		if want.CostMicroUSD > b.MicroUSD() {
			return Over(a.id, of, "usd", fmt.Sprintf("%s spent, up to %s more for the next call", dollars(spent.CostMicroUSD), dollars(want.Less(spent.Usage).CostMicroUSD)), dollars(b.MicroUSD()))
		}
	}
	if b.Seconds > 0 {
		ran := a.elapsed()
		if of == "session" {
			ran = time.Duration(holdfast.Sum(int64(ran), int64(spent.Duration())))
		}
		if ran >= b.Duration() {
			return Over(a.id, of, "seconds", ran.Round(time.Second).String()+" spent", b.Duration().String())
		}
	}
	return nil
}

// elapsed returns how long the turn has run, without its waits; a.mu is held.
func (a *Account) elapsed() time.Duration {
	return max(a.now().Sub(a.began)-a.parked, 0)
}

// Over makes the denied error for a budget that the caller found used up or too small for the next call. Its hint says how
// to raise the budget.
func Over(id holdfast.SessionID, of, name, spent, limit string) error {
	flag := "budget"
	if of == "turn" {
		flag = "turn-budget"
	}
	return holdfast.Errorf(holdfast.KindDenied, "budget", "the %s's budget of %s is used up or too small for the next call: %s, the limit is %s", of, name, spent, limit).
		WithHint("raise the budget: holdfast session update %s --%s %s=N", id, flag, name)
}

func dollars(micro int64) string { return fmt.Sprintf("%.6f usd", float64(micro)/1e6) }

// Spent returns the turn's usage so far.
func (a *Account) Spent() holdfast.Spent {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.used
	s.DurationMS = a.elapsed().Milliseconds()
	return s
}

// Reserved returns the sum of the open reservations.
func (a *Account) Reserved() holdfast.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserved
}

// Park records that the turn waits for its provider until a time; the zero time ends the wait.
func (a *Account) Park(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = until
}

// Waited adds a finished wait, which does not count as running time.
func (a *Account) Waited(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parked += d
}

// ParkedUntil returns when the current wait for the provider is over; nil if the turn does not
// wait.
func (a *Account) ParkedUntil() *time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until.IsZero() {
		return nil
	}
	t := a.until.UTC().Truncate(time.Millisecond)
	return &t
}

// Recount sets the usage of a turn that continues after a crash, as its log has it.
func (a *Account) Recount(t *conversation.Turn) {
	used, parked := holdfast.Spent{Usage: t.Failed, Calls: int64(t.Answers)}, time.Duration(0)
	// If an agent CLI made its model calls through the broker, the broker has recorded each call. Do not add the usage in
	// the agent's messages, or it would be counted twice.
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
		// The question is still open: the wait so far counts.
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
