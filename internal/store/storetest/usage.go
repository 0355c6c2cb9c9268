package storetest

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

var usageCases = []testCase{
	{"adds what is spent to the row, with the turn's end and after a restart", func(e *env) {
		id := e.newSession()
		one := holdfast.Spent{
			Usage: holdfast.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, CostMicroUSD: 5, UnpricedCalls: 6},
			Calls: 7, Turns: 1, DurationMS: 8,
		}
		revision := e.row(id).Revision
		for range 2 {
			c := journal.NewChange(id)
			c.Spent = one
			c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
			e.commit(c)
		}
		equal(e, "spent", e.row(id).Spent, one.Add(one))
		equal(e, "revision", e.row(id).Revision, revision+2)
		e.Store = e.Reopen(e.T)
		equal(e, "spent after a restart", e.row(id).Spent, one.Add(one))
	}},
	{"a session begins with nothing spent, whatever its creation says", func(e *env) {
		c := creation(holdfast.SessionID(e.newID()))
		c.Create.Spent = holdfast.Spent{Calls: 9}
		equal(e, "spent", e.commit(c).Row.Spent, holdfast.Spent{})
	}},
	{"keeps budgets, replaces them whole, and drops one that bounds nothing", func(e *env) {
		c := creation(holdfast.SessionID(e.newID()))
		c.Create.Budget = &holdfast.Budget{USD: 0.25, Tokens: 5}
		c.Create.TurnBudget = &holdfast.Budget{Seconds: 1.5}
		id := e.commit(c).Row.ID
		e.Store = e.Reopen(e.T)
		equal(e, "budget", *e.row(id).Budget, holdfast.Budget{USD: 0.25, Tokens: 5})
		equal(e, "turn budget", *e.row(id).TurnBudget, holdfast.Budget{Seconds: 1.5})
		c = journal.NewChange(id)
		c.Set = &journal.RowPatch{Budget: &holdfast.Budget{Turns: 3}, TurnBudget: &holdfast.Budget{}}
		e.commit(c)
		e.Store = e.Reopen(e.T)
		equal(e, "budget", *e.row(id).Budget, holdfast.Budget{Turns: 3})
		if b := e.row(id).TurnBudget; b != nil {
			e.Fatalf("turn budget %+v is still there", *b)
		}
	}},
}
