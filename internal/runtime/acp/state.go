package acp

import (
	"math"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// The phases of an agent's process: the handshake request that it has to answer next, or ready once it
// accepts prompts.
const (
	phaseHello = "initialize"
	phaseOpen  = "open"
	phaseReady = "ready"
)

// data is the content of AgentState.Data: all that the next server needs to continue with the agent, if this
// server dies at any moment.
type data struct {
	Phase string `json:"phase,omitempty"`
	// Next is the id of the next request to the agent, Asked the id of the handshake request whose answer is awaited.
	Next  int64 `json:"next,omitempty"`
	Asked int64 `json:"asked,omitempty"`
	// Out are the lines that the agent may not have received, as of the last commit.
	Out []resident.Sent `json:"out,omitempty"`

	Loads bool `json:"loads,omitempty"`
	// Loading counts what the agent has replayed of its stored session. It is nil unless the agent was asked
	// to load it (session/load).
	Loading *replay `json:"loads_session,omitempty"`
	// Reason says why the agent could not be resumed with a better tier (resume method).
	Reason string `json:"reason,omitempty"`

	Model string `json:"model,omitempty"`
	// At is the path of the workspace for an agent whose process runs on the host; empty for one in a box.
	At    string   `json:"at,omitempty"`
	Mode  string   `json:"mode,omitempty"`
	Modes []string `json:"modes,omitempty"`

	// Tier is the tier (resume method) for the next receipt of a start; empty means live: the process still runs.
	Tier holdfast.Tier `json:"tier,omitempty"`
	// Prompts is how many prompts the agent has answered, Most how many it may know. Unsettled is set if the agent may
	// lack a prompt that was sent to it: it knows the conversation up to this event number in any case.
	Prompts   int64  `json:"prompts,omitempty"`
	Most      int64  `json:"most,omitempty"`
	Unsettled *int64 `json:"unsettled,omitempty"`
	// GoOn is true if the next prompt tells the agent to continue a prompt that it knows: its process
	// ended while a tool call waited for a decision.
	GoOn bool `json:"go_on,omitempty"`
	// Said is an event number: the user's messages up to it count as sent to the agent.
	Said int64 `json:"said,omitempty"`

	Prompt *prompt `json:"prompt,omitempty"`
	// Tries is how often the agent's process ended by itself and was replaced for the same prompt.
	Tries int `json:"tries,omitempty"`
}

// replay counts the user messages that an agent has replayed of a loaded session, and has the id of the newest one.
type replay struct {
	Heard int64  `json:"heard,omitempty"`
	Last  string `json:"last,omitempty"`
}

// prompt is the prompt that was sent to the agent and is not answered yet.
type prompt struct {
	ID   int64           `json:"id"`
	Turn holdfast.TurnID `json:"turn"`
	// Messages are the event numbers of the user messages in the prompt. After is the number of the event up to which
	// the agent knows the conversation: the prompt begins with the history between After and the messages.
	Messages []int64 `json:"messages"`
	After    int64   `json:"after"`
	// GoOn is true if the prompt contains, instead of the messages, which the agent knows already, a reminder
	// to continue.
	GoOn bool `json:"go_on,omitempty"`
	// Instructs is true if the prompt contains the instructions of the session's agent.
	Instructs bool `json:"instructs,omitempty"`
	// Produced is true once a part of the answer to the prompt is in the log.
	Produced bool `json:"produced,omitempty"`
	// Cancelled is true once session/cancel was sent to end the prompt.
	Cancelled bool `json:"cancelled,omitempty"`
	// Parts are pieces of the answer that were received but are not in the log yet.
	Parts []piece `json:"parts,omitempty"`
	Tools []tool  `json:"tools,omitempty"`
}

// piece is a piece of the agent's text, or of its thinking if Thought is true.
type piece struct {
	Message string `json:"message,omitempty"`
	Thought bool   `json:"thought,omitempty"`
	Text    string `json:"text"`
}

// end is a value for the Upto of a state. It stands for the number of the last event in the commit that
// stores the state.
const end = math.MaxInt64

// unnamed is the AgentID in the state of an agent that has not opened a session yet.
const unnamed = "unnamed"

// agent is the session's agent, with the state that the next commit will store.
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

// snapshot returns the state to store. Taken, the offset up to which output is recorded, becomes offset.
func (a *agent) snapshot(offset int64) holdfast.AgentState {
	s := a.rec.State
	if s.Call != "" {
		s.Taken = offset
	}
	a.data.Out = a.out.Sent
	d := a.data
	if d.Prompt != nil {
		p := *d.Prompt
		p.Tools = stored(p.Tools)
		d.Prompt = &p
	}
	s.Data = resident.Marshal(d)
	return s
}

// storedTools is the most bytes of the tool calls of a prompt in a stored state: a store refuses a state of more than
// 256 KiB.
const storedTools = 128 << 10

// stored returns the tool calls as the state stores them. It leaves out long inputs and paths that do not fit, and
// marks their calls as incomplete: if this server dies, the next one denies these calls, unless the log has their
// input.
func stored(tools []tool) []tool {
	out, left := slices.Clone(tools), storedTools
	for i := range out {
		t := &out[i]
		size := len(resident.Marshal(t))
		if size > left {
			t.Cut = t.Cut || t.size() > 0
			t.Lost = t.Lost || len(t.Paths) > 0
			t.Raw, t.Input, t.Old, t.New, t.Paths = nil, nil, nil, nil, nil
			size = len(resident.Marshal(t))
		}
		left -= size
	}
	return out
}

// stopped clears the fields that describe the process, which has ended.
func (a *agent) stopped() {
	d := &a.data
	d.Phase, d.Next, d.Asked, d.Loading, d.Mode = "", 0, 0, nil, ""
}

// ask returns the next request of the handshake, and stores its id as the one whose answer is awaited.
func (a *agent) ask(method string, params any) []byte {
	id := a.data.Next
	a.data.Next++
	a.data.Asked = id
	return request(id, method, params)
}

// replace replaces the current agent by a new one, and sets the health of the old one. The
// process now belongs to the new agent.
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

// quarantine marks the agent's stored session as unusable. The process begins a new session, as a new agent
// with the next generation.
func (a *agent) quarantine(runtime string, states []holdfast.AgentState, reason string) {
	old, d := a.rec.State, a.data
	a.replace(runtime, states, holdfast.HealthQuarantined)
	n := &a.data
	n.Phase, n.Next, n.Loads, n.Model, n.At = d.Phase, d.Next, d.Loads, d.Model, d.At
	n.Reason, n.Tier = reason, holdfast.TierInjected
	a.rec.Add(holdfast.EventAgentQuarantined, holdfast.AgentQuarantined{
		Generation: old.Generation, Runtime: runtime, AgentID: old.AgentID, Reason: reason,
	})
}

// unsettle ends a prompt that gets no answer. It is unknown whether the agent knows the prompt.
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

// settle ends the prompt after the agent answered it.
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

// ready records that the agent accepts prompts, and the modes that it offers.
func (a *agent) ready(o *opened) {
	d := &a.data
	d.Phase, d.Loading, d.Mode, d.Modes = phaseReady, nil, o.Modes.Current, nil
	for _, mode := range o.Modes.Available {
		if len(d.Modes) < 20 && len(mode.ID) <= 64 {
			d.Modes = append(d.Modes, mode.ID)
		}
	}
}

// offers reports whether the agent offers the given mode and is not in it yet.
func (a *agent) offers(mode string) bool {
	return mode != "" && mode != a.data.Mode && slices.Contains(a.data.Modes, mode)
}
