package claude

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast"
)

// memory is what the runtime keeps in AgentState.Data: committed with the events
// that it goes with, so that the next server knows where it stands with the CLI.
type memory struct {
	// Shaken: the CLI of this call has answered the handshake.
	Shaken bool `json:"shaken,omitempty"`
	// Model is what the CLI was told last.
	Model string `json:"model,omitempty"`
	// Prefaced: the first prompt brings the history along. It stands nowhere but in
	// memory: an agent that has not begun with it is started anew.
	Prefaced bool `json:"prefaced,omitempty"`

	// The rest is about one turn: From is the log entry before it, Known what the
	// agent knew of completed turns before it.
	Turn  holdfast.TurnID `json:"turn,omitempty"`
	From  int64           `json:"from,omitempty"`
	Known int64           `json:"known,omitempty"`
	// Starts counts how often the CLI was started within it.
	Starts int `json:"starts,omitempty"`
	// Parked says that the turn waits for its provider, and goes on with a reminder;
	// Parks counts how often it did.
	Parked bool `json:"parked,omitempty"`
	Parks  int  `json:"parks,omitempty"`
	// Sent are its messages that were handed to the CLI, Pending the requests of the
	// CLI that are not over, or whose answer may not have reached it.
	Sent    []sent    `json:"sent,omitempty"`
	Pending []pending `json:"pending,omitempty"`
	// Leaf is the last line of the newest answer that the transcript has to hold.
	Leaf string `json:"leaf,omitempty"`
}

// sent is a message of the user on its way.
type sent struct {
	UUID string `json:"uuid"`
	// Seq is its log entry; 0 is a reminder of the runtime's own.
	Seq int64 `json:"seq,omitempty"`
	// At is where it begins in what is sent to the CLI: taken beyond that, it arrived.
	At int64 `json:"at"`
	// Begun: the CLI works on it. Done: a result covers it.
	Begun bool `json:"begun,omitempty"`
	Done  bool `json:"done,omitempty"`
}

// pending is a request of the CLI about a tool use.
type pending struct {
	ID  string `json:"id"`
	Use string `json:"use"`
	// Kind is pre, can, post, call or answer.
	Kind string `json:"kind"`
	// Input is what it is about where that is not the input of tool.requested; of a post
	// the outcome of the tool, as hooks are told of it.
	Input json.RawMessage `json:"input,omitempty"`
	// Answer is the line that answers it, of the kind answer.
	Answer json.RawMessage `json:"answer,omitempty"`
	// ReplyTo is the id within an MCP message.
	ReplyTo json.RawMessage `json:"reply_to,omitempty"`
}

const (
	kindPre  = "pre"
	kindCan  = "can"
	kindPost = "post"
	kindCall = "call"
	// kindAnswer is any other request. It changes nothing, and its answer is made at once.
	kindAnswer = "answer"
)

// open reports whether the CLI waits for a decision or for a tool of the server.
func (p pending) open() bool { return p.Kind != kindPost && p.Kind != kindAnswer }

// opens reports whether a request is open.
func (m *memory) opens() bool { return slices.ContainsFunc(m.Pending, pending.open) }

// remember reads a state's memory.
func remember(s *holdfast.AgentState) (memory, error) {
	var m memory
	if s == nil || len(s.Data) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(s.Data, &m); err != nil {
		return m, holdfast.Errorf(holdfast.KindInternal, op, "agent state %d does not decode: %w", s.Generation, err)
	}
	return m, nil
}

// restarted forgets what held for a process that is gone.
func (m *memory) restarted() {
	m.Shaken, m.Sent, m.Pending, m.Leaf = false, nil, nil, ""
}
