package chat

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Input applies something that happened to the conversation and returns the effects to carry
// out. Inputs are applied one after the other.
type Input func(*Talk) []Effect

// Effect is work for the front end or the link: a Show, Print, Message, Call, Follow, Remember, Restore or Leave.
type Effect any

type (
	// Show prints lines.
	Show []plain.Line
	// Print prints an event as JSON.
	Print struct{ Event holdfast.Event }
	// Message sends Text to Session, or, if that is empty, to the session that the first message creates from Create.
	Message struct {
		Text    string
		Session holdfast.SessionID
		Create  *holdfast.CreateSession
	}
	// Call runs Do for at most Limit; the Input that Do returns is applied.
	Call struct {
		Limit time.Duration
		Do    func(context.Context, *client.Client) Input
	}
	// Follow streams the events of the log after the event number After, without end.
	Follow struct {
		ID    holdfast.SessionID
		After int64
	}
	// Remember records the session as the one that the user used last (@last).
	Remember struct{ ID holdfast.SessionID }
	// Restore puts a text back into the editor, or shows it where there is no editor.
	Restore struct{ Text string }
	// Leave ends the conversation with an exit code, after Lines were shown.
	Leave struct {
		Code  int
		Lines []plain.Line
		// Err is the error that ended the conversation, nil if the user left. Lost is set instead if
		// the event stream ended.
		Err, Lost error
	}
)

// callLimit is how long most calls of the server may take; copies, diffs, rewinds and forks have treeLimit instead.
const callLimit = 10 * time.Second

// Sent is the outcome of sending a message, or the news that the session was created or that the
// message still waits.
type Sent struct {
	Text    string
	Created *holdfast.Session // the session that was created for the message
	Turn    holdfast.TurnID
	Held    error // why the message is not sent yet; sending is tried again
	Err     error
}
