package acp

import (
	"encoding/json"
	"math"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
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
	// In is how much was written to its stdin, Out what of that boxd may not have
	// taken.
	In  int64  `json:"in,omitempty"`
	Out []sent `json:"out,omitempty"`

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

	// Tier is what the next receipt says; empty is live.
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

// sent is a line for the agent and where its end lies in the stdin. The prompt's
// line is made again from the log.
type sent struct {
	End    int64           `json:"end"`
	Line   json.RawMessage `json:"line,omitempty"`
	Prompt bool            `json:"prompt,omitempty"`
}

// prompt is the one that waits for its answer.
type prompt struct {
	ID   int64           `json:"id"`
	Turn holdfast.TurnID `json:"turn"`
	// Messages are the user's that it carries; After is the log entry up to which
	// the agent knew all, for the history in front of them.
	Messages []int64 `json:"messages"`
	After    int64   `json:"after"`
	// Produced: something of its answer is in the log.
	Produced bool `json:"produced,omitempty"`
	Steps    int  `json:"steps,omitempty"`
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

// agent is the state under way: what is kept is what the next server finds.
type agent struct {
	state holdfast.AgentState
	data  data
}

func newAgent(s holdfast.AgentState) (*agent, error) {
	a := &agent{state: s}
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &a.data); err != nil {
			return nil, holdfast.Errorf(holdfast.KindInternal, op, "state %d of the session's agents: %w", s.Generation, err)
		}
	}
	return a, nil
}

// row is the state as it is kept.
func (a *agent) row() (holdfast.AgentState, error) {
	raw, err := json.Marshal(a.data)
	a.state.Data = raw
	return a.state, err
}

// stopped: no process runs for it.
func (a *agent) stopped() {
	a.state.Call, a.state.Box, a.state.Boot, a.state.Taken = "", "", "", 0
	d := &a.data
	d.Phase, d.Next, d.Asked, d.In, d.Out, d.Loading, d.Heard, d.Last, d.Mode = "", 0, 0, 0, nil, false, 0, "", ""
}

// begins: a process runs for it from here on.
func (a *agent) begins(call holdfast.CallID, box holdfast.BoxID, boot, model string) {
	a.stopped()
	a.state.Call, a.state.Box, a.state.Boot = call, box, boot
	a.data.Phase, a.data.Next, a.data.Model = phaseHello, 1, model
}

// send appends a line to what goes to the stdin.
func (a *agent) send(line json.RawMessage, isPrompt bool) {
	a.data.In += int64(len(line)) + 1
	s := sent{End: a.data.In, Line: line}
	if isPrompt {
		s = sent{End: a.data.In, Prompt: true}
	}
	a.data.Out = append(a.data.Out, s)
}

// ask makes the next request.
func (a *agent) ask(method string, params any) (json.RawMessage, error) {
	id := a.data.Next
	a.data.Next++
	a.data.Asked = id
	return request(id, method, params)
}

func draft(typ holdfast.EventType, payload any) journal.Draft {
	return journal.Draft{Type: typ, Data: payload}
}
