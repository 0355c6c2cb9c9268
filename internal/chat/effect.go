package chat

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Input is something that happened: it changes the conversation and returns what is to be
// done. Inputs are applied one after the other.
type Input func(*Talk) []Effect

// Effect is something to be done: one of the types below.
type Effect any

type (
	// Show shows lines.
	Show []plain.Line
	// Print prints an event as JSON.
	Print struct{ Event holdfast.Event }
	// Message is sent to the session, which is created first if there is none.
	Message struct {
		Text   string
		Create *holdfast.CreateSession
	}
	// Call asks the server for something, and Do's Input is applied.
	Call struct {
		Limit time.Duration
		Do    func(context.Context, *client.Client) Input
	}
	// Follow reads the log after an event, on and on.
	Follow struct {
		ID    holdfast.SessionID
		After int64
	}
	// Remember makes the session the user's last one.
	Remember struct{ ID holdfast.SessionID }
	// Restore gives a text back to be edited.
	Restore struct{ Text string }
	// Leave ends the conversation.
	Leave struct {
		Code  int
		Lines []plain.Line
		// Err is why, if it is not the user's wish; Lost, if the log ended before.
		Err, Lost error
	}
)

// callLimit is how long a command waits for its answer.
const callLimit = 10 * time.Second

// Sent is what became of a message.
type Sent struct {
	Text    string
	Created *holdfast.Session // it was created for this message
	Turn    holdfast.TurnID
	Held    error // not yet: it is tried again
	Err     error
}
