package storetest

import (
	"encoding/json"
	"math"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// state returns an agent state of a generation with all fields set.
func state(generation int64) holdfast.AgentState {
	return holdfast.AgentState{
		Generation: generation, Runtime: "claude", AgentID: "agent", Health: holdfast.HealthCurrent, Version: "2.1", Turns: 2, Upto: 1,
		Call: "call", Box: "box", Boot: "boot", Taken: 77, Data: json.RawMessage(`{"tail":"u1"}`),
	}
}

// stated returns a change to the session id with agent states and one event.
func stated(id holdfast.SessionID, list ...holdfast.AgentState) journal.Change {
	c := journal.NewChange(id)
	c.States = list
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
	return c
}

func (e *env) states(id holdfast.SessionID) []holdfast.AgentState {
	e.Helper()
	list, err := e.Store.AgentStates(e.ctx, id)
	e.ok(err)
	return list
}

var stateCases = []testCase{
	{"keeps states by generation, replaces one, and raises no revision", func(e *env) {
		id, other := e.newSession(), e.newSession()
		revision := e.row(id).Revision
		e.commit(stated(id, state(1)))
		one, two := state(1), state(2)
		one.Health, one.Taken, two.Data = holdfast.HealthQuarantined, 99, nil
		e.commit(stated(id, one, two))
		e.commit(stated(other, state(1)))
		for range 2 {
			same(e, "states", e.states(id), []holdfast.AgentState{one, two})
			same(e, "the other's", e.states(other), []holdfast.AgentState{state(1)})
			e.Store = e.Reopen(e.T)
		}
		same(e, "revision", e.row(id).Revision, revision)
		same(e, "none", len(e.states(e.newSession())), 0)
	}},
	{"an upto beyond the log is its end", func(e *env) {
		id := e.newSession()
		st := state(1)
		st.Upto = math.MaxInt64
		e.commit(stated(id, st))
		same(e, "upto", e.states(id)[0].Upto, e.row(id).LastSeq)
	}},
	{"refuses a gap of generations, and writes nothing of the change", func(e *env) {
		id := e.newSession()
		before := e.row(id).LastSeq
		e.refuse(stated(id, state(2)), holdfast.KindConflict)
		e.refuse(stated(id, state(1), state(3)), holdfast.KindConflict)
		same(e, "log", e.row(id).LastSeq, before)
		same(e, "states", len(e.states(id)), 0)
	}},
	{"refuses what is incomplete or no JSON", func(e *env) {
		id := e.newSession()
		for _, spoil := range []func(*holdfast.AgentState){
			func(s *holdfast.AgentState) { s.Generation = 0 },
			func(s *holdfast.AgentState) { s.Runtime = "" },
			func(s *holdfast.AgentState) { s.AgentID = "" },
			func(s *holdfast.AgentState) { s.Health = "well" },
			func(s *holdfast.AgentState) { s.AgentID = "a\x00b" },
			func(s *holdfast.AgentState) { s.Version = "\xff" },
		} {
			st := state(1)
			spoil(&st)
			e.refuse(stated(id, st), holdfast.KindInvalid)
		}
	}},
	{"go with their session", func(e *env) {
		id := e.newSession()
		e.commit(stated(id, state(1)))
		c := journal.NewChange(id)
		c.Status = []holdfast.Status{holdfast.StatusEnded}
		e.commit(c)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		same(e, "states", len(e.states(id)), 0)
	}},
}
