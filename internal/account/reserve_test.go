package account

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Calls at once cannot overshoot together: each is set aside at the most it can
// cost before it is made.
func TestReservationsDoNotOvershoot(t *testing.T) {
	a := &Account{now: time.Now, began: time.Now(), session: &holdfast.Budget{Tokens: 100}}
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			settle, err := a.Reserve(holdfast.Usage{OutputTokens: 10})
			if err != nil {
				return
			}
			granted.Add(1)
			settle(holdfast.Usage{OutputTokens: 10}, true)
		})
	}
	wg.Wait()
	if got := a.Spent(); granted.Load() != 10 || got.Tokens() != 100 || got.Calls != 10 || a.reserved != (holdfast.Usage{}) {
		t.Errorf("%d granted, spent %+v, reserved %+v", granted.Load(), got, a.reserved)
	}
	// Open reservations count as spent, and what they did not use comes back.
	a = &Account{now: time.Now, began: time.Now(), turn: &holdfast.Budget{Tokens: 100}}
	settle, err := a.Reserve(holdfast.Usage{InputTokens: 95})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reserve(holdfast.Usage{InputTokens: 6}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Error(err)
	}
	settle(holdfast.Usage{InputTokens: 1}, true)
	settle(holdfast.Usage{InputTokens: 90}, true)
	if _, err := a.Reserve(holdfast.Usage{InputTokens: 99}); err != nil {
		t.Error(err)
	}
}

// TestOpenCallsCount: a call in progress uses up one of a turn's calls, and gives it back if it is not answered.
func TestOpenCallsCount(t *testing.T) {
	a := &Account{now: time.Now, began: time.Now(), turn: &holdfast.Budget{Turns: 2}}
	var settles []func(holdfast.Usage, bool)
	for range 2 {
		settle, err := a.Reserve(holdfast.Usage{})
		if err != nil {
			t.Fatal(err)
		}
		settles = append(settles, settle)
	}
	if _, err := a.Reserve(holdfast.Usage{}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a third call beside two in progress: %v", err)
	}
	settles[0](holdfast.Usage{}, false)
	settle, err := a.Reserve(holdfast.Usage{})
	if err != nil {
		t.Fatalf("a call after one that was not answered: %v", err)
	}
	settle(holdfast.Usage{}, true)
	settles[1](holdfast.Usage{}, true)
	if _, err := a.Reserve(holdfast.Usage{}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a third answered call: %v", err)
	}
}
