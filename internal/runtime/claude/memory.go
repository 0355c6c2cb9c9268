package claude

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// memory is the content of AgentState.Data. It is committed together with the events that it
// belongs to, so that the next server knows the state of the CLI.
type memory struct {
	// Shaken is true once this process of the CLI has answered the handshake.
	Shaken bool `json:"shaken,omitempty"`
	// Model is the model that the CLI was last told to use.
	Model string `json:"model,omitempty"`
	// At is the path of the workspace on the host, for an agent that runs on the host; the agent's
	// conversation contains such paths. It is empty for a box.
	At string `json:"at,omitempty"`
	// Prefaced is true if the CLI's first prompt contains the history, which the CLI has only in memory. If
	// the process has not begun to work on that prompt, the next turn replaces the process by a new one.
	Prefaced bool `json:"prefaced,omitempty"`

	// The fields from Turn to Leaf are about one turn: From is the number of the event before it, Known the
	// number of completed turns that the agent knew before it.
	Turn  holdfast.TurnID `json:"turn,omitempty"`
	From  int64           `json:"from,omitempty"`
	Known int64           `json:"known,omitempty"`
	// Starts is how often the CLI was started in the turn.
	Starts int `json:"starts,omitempty"`
	// Parked is true if the newest answer was cut off, because the turn waits for its provider or the
	// process ended while a tool call waited for a decision; the turn continues with a reminder.
	// Parks is how often the turn was parked to wait for its provider.
	Parked bool `json:"parked,omitempty"`
	Parks  int  `json:"parks,omitempty"`
	// Leaf is the uuid of the last line of the newest answer, which the transcript must contain.
	Leaf string `json:"leaf,omitempty"`

	// Sent are the turn's messages that were sent to the CLI, Pending its requests that are not over, Out the lines
	// that it may not have received: the contents of letters, inbox and resident.Outbox at the last commit.
	Sent    []sent          `json:"sent,omitempty"`
	Pending []pending       `json:"pending,omitempty"`
	Out     []resident.Sent `json:"out,omitempty"`
}
