package acp

import (
	"math"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// The phases of an agent's process: what was asked of it last before it can take
// prompts.
const (
	phaseHello = "initialize"
	phaseAuth  = "authenticate"
	phaseOpen  = "open"
	phaseReady = "ready"
)

// data is what AgentState.Data holds: enough to go on with an agent whose server
// died at any moment.
type data struct {
	Phase string `json:"phase,omitempty"`
	// Next is the id of the next request, Asked that of the one that the phase
	// waits for.
	Next  int64 `json:"next,omitempty"`
	Asked int64 `json:"asked,omitempty"`
	// Out are the lines that the agent may not have got, as of the last commit.
	Out []resident.Sent `json:"out,omitempty"`

	Loads bool `json:"loads,omitempty"`
	// Loading: session/load was asked, not session/new. Heard counts the messages
	// of the user that the agent told since then, Last is the newest one's id.
	Loading bool   `json:"loading,omitempty"`
	Heard   int64  `json:"heard,omitempty"`
	Last    string `json:"last,omitempty"`
	// Reason is why no better tier was taken.
	Reason string `json:"reason,omitempty"`

	Model string   `json:"model,omitempty"`
	Mode  string   `json:"mode,omitempty"`
	Modes []string `json:"modes,omitempty"`

	// Tier is the one of the next receipt; empty is live.
	Tier holdfast.Tier `json:"tier,omitempty"`
	// Prompts is how many prompts the agent answered, Most how many it may know.
	// Where it may have lost one, Unsettled is the log entry up to which it knows all.
	Prompts   int64  `json:"prompts,omitempty"`
	Most      int64  `json:"most,omitempty"`
	Unsettled *int64 `json:"unsettled,omitempty"`
	// Said is the newest message of a user that was handed out.
	Said int64 `json:"said,omitempty"`

	Prompt *prompt `json:"prompt,omitempty"`
	// Tries is how often an agent ended before it did anything for a turn.
	Tries int `json:"tries,omitempty"`
}

// prompt is the one that waits for its answer.
type prompt struct {
	ID   int64           `json:"id"`
	Turn holdfast.TurnID `json:"turn"`
	// Messages are the user's that it carries; After is the log entry up to which
	// the agent knew all, for the history in front of them.
	Messages []int64 `json:"messages"`
	After    int64   `json:"after"`
	// Instructs: it carries the instructions of the session's agent.
	Instructs bool `json:"instructs,omitempty"`
	// Produced: something of its answer is in the log.
	Produced bool `json:"produced,omitempty"`
	// Cancelled: session/cancel was sent.
	Cancelled bool `json:"cancelled,omitempty"`
	// Parts are pieces of the answer that are not in the log yet, but taken.
	Parts []piece `json:"parts,omitempty"`
	Tools []tool  `json:"tools,omitempty"`
}

// piece is text or thinking of the agent.
type piece struct {
	Message string `json:"message,omitempty"`
	Thought bool   `json:"thought,omitempty"`
	Text    string `json:"text"`
}

// end stands for the end of the log with the change that it is committed with.
const end = math.MaxInt64

// unnamed is an agent that has not said yet what it calls its session.
const unnamed = "unnamed"

// agent is the agent of the session as the state will have it with the next commit.
type agent struct {
	data data
	rec  *resident.Recorder
	out  *resident.Outbox
}

// decode reads the data of the recorder's state.
func (a *agent) decode() error {
	err := resident.Decode(&a.rec.State, op, &a.data)
	a.out.Sent = a.data.Out
	return err
}

// exists reports whether the session has an agent of this runtime.
func (a *agent) exists() bool { return a.rec.State.Generation > 0 }

// snapshot is the state as it is kept, with the output up to an offset taken.
func (a *agent) snapshot(offset int64) holdfast.AgentState {
	s := a.rec.State
	if s.Call != "" {
		s.Taken = offset
	}
	a.data.Out = a.out.Sent
	s.Data = resident.Marshal(a.data)
	return s
}

// stopped: no process runs for it.
func (a *agent) stopped() {
	d := &a.data
	d.Phase, d.Next, d.Asked, d.Loading, d.Heard, d.Last, d.Mode = "", 0, 0, false, 0, "", ""
}

// ask makes the next request.
func (a *agent) ask(method string, params any) []byte {
	id := a.data.Next
	a.data.Next++
	a.data.Asked = id
	return request(id, method, params)
}

// replace makes a new agent in the place of the current one, whose health becomes
// another. The process stays with the new one.
func (a *agent) replace(runtime string, states []holdfast.AgentState, health holdfast.AgentHealth) {
	old, generation := a.rec.State, a.rec.State.Generation
	for _, s := range states {
		generation = max(generation, s.Generation)
	}
	fresh := data{}
	if a.exists() {
		fresh.Tries = a.data.Tries
		a.stopped()
		a.data.Prompt, a.data.Out = nil, nil
		left := old
		left.Call, left.Box, left.Boot, left.Taken, left.Health = "", "", "", 0, health
		left.Data = resident.Marshal(a.data)
		a.rec.Other(left)
	}
	a.data = fresh
	a.rec.State = holdfast.AgentState{
		Generation: generation + 1, Runtime: runtime, AgentID: unnamed, Health: holdfast.HealthCurrent,
		Call: old.Call, Box: old.Box, Boot: old.Boot, Taken: old.Taken, Version: old.Version,
	}
}

// quarantine puts what the agent kept aside: the process begins another session.
func (a *agent) quarantine(runtime string, states []holdfast.AgentState, reason string) {
	old, d := a.rec.State, a.data
	a.replace(runtime, states, holdfast.HealthQuarantined)
	n := &a.data
	n.Phase, n.Next, n.Loads, n.Model = d.Phase, d.Next, d.Loads, d.Model
	n.Reason, n.Tier = reason, holdfast.TierInjected
	a.rec.Add(holdfast.EventAgentQuarantined, holdfast.AgentQuarantined{
		Generation: old.Generation, Runtime: runtime, AgentID: old.AgentID, Reason: reason,
	})
}

// unsettle ends the prompt without an answer: the agent may know it or not.
func (a *agent) unsettle() {
	d := &a.data
	if d.Prompt == nil {
		return
	}
	if d.Unsettled == nil {
		after := d.Prompt.After
		d.Unsettled = &after
	}
	d.Most++
	d.Prompt = nil
	a.out.Read()
	a.rec.Touch()
}

// settle ends the prompt with the agent's answer.
func (a *agent) settle() {
	d := &a.data
	d.Prompts++
	d.Most = max(d.Most+1, d.Prompts)
	d.Tries, d.Prompt = 0, nil
	a.out.Read()
	a.rec.State.Turns++
	a.rec.State.Upto = end
	a.rec.Touch()
}

// ready says that the agent takes prompts, in a session of its own with these modes.
func (a *agent) ready(o *opened) {
	d := &a.data
	d.Phase, d.Loading, d.Mode, d.Modes = phaseReady, false, o.Modes.Current, nil
	for _, mode := range o.Modes.Available {
		if len(d.Modes) < 20 && len(mode.ID) <= 64 {
			d.Modes = append(d.Modes, mode.ID)
		}
	}
}

// offers reports whether the agent has a mode, and is not in it.
func (a *agent) offers(mode string) bool {
	return mode != "" && mode != a.data.Mode && slices.Contains(a.data.Modes, mode)
}
