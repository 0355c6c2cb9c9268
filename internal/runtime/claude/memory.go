package claude

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// memory is what the runtime keeps in AgentState.Data: committed with the events that it
// goes with, so that the next server knows where it stands with the CLI.
type memory struct {
	// Shaken: the CLI of this call has answered the handshake.
	Shaken bool `json:"shaken,omitempty"`
	// Model is the model that the CLI was given last.
	Model string `json:"model,omitempty"`
	// Prefaced: the first prompt brings the history along, which is kept in memory only.
	// An agent that has not begun with it is started again.
	Prefaced bool `json:"prefaced,omitempty"`

	// The rest is about one turn: From is the log entry before it, Known how many
	// completed turns the agent knew before it.
	Turn  holdfast.TurnID `json:"turn,omitempty"`
	From  int64           `json:"from,omitempty"`
	Known int64           `json:"known,omitempty"`
	// Starts counts how often the CLI was started within it.
	Starts int `json:"starts,omitempty"`
	// Parked says that the turn waits for its provider, and goes on with a reminder;
	// Parks counts how often it did.
	Parked bool `json:"parked,omitempty"`
	Parks  int  `json:"parks,omitempty"`
	// Leaf is the last line of the newest answer that the transcript has to hold.
	Leaf string `json:"leaf,omitempty"`

	// Sent are the turn's messages that were handed to the CLI, Pending the requests of
	// the CLI that are not over, Out the lines that it may not have got. They belong to
	// letters, inbox and resident.Outbox; here they are as of the last commit.
	Sent    []sent          `json:"sent,omitempty"`
	Pending []pending       `json:"pending,omitempty"`
	Out     []resident.Sent `json:"out,omitempty"`
}
